"""The command line. One file per verb; only the one that is asked for is imported, and what is heavy inside it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module

import typer

VERBS = (
    "simulate", "compare", "analyze", "policies", "generate", "traces", "profiles", "estimator", "profile", "why",
    "serve", "open", "submit", "run", "shell", "exec", "attach", "port",
    "ps", "show", "logs", "cancel", "hold", "resume", "requeue", "resubmit", "set", "wait", "top", "nodes",
    "drain", "maintenance", "reserve", "events", "policy", "whatif", "forecast", "tenants", "share", "usage", "token",
    "login", "audit", "backup", "restore", "shutdown", "service", "doctor", "slurm-shims",
)  # fmt: skip


def make_app(verbs: Iterable[str] = VERBS) -> typer.Typer:
    """The command line with these verbs. A verb is a module of its name: `app` if it has verbs of its own, else a
    function of that name, with the class `Command` where it has one."""
    app = typer.Typer(
        name="cotenant",
        help="The scheduler for shared GPU clusters: simulate, compare and explain.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for verb in verbs:
        name = f"{verb}_" if verb in ("open", "set") else verb.replace("-", "_")
        module = import_module(f"cotenant.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=verb)
        else:
            app.command(verb, cls=getattr(module, "Command", None))(getattr(module, name))
    return app


def _version(value: bool) -> None:
    if value:
        from cotenant import __version__

        typer.echo(f"cotenant {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """The scheduler for shared GPU clusters: simulate, compare and explain."""


def _unavailable(error: Exception) -> bool:
    """Whether it was the service, not the user: a script may try again later."""
    from cotenant.service.facade import Unavailable

    return isinstance(error, Unavailable)


def main() -> None:
    """Run a verb. What the user can mend is one line on standard error and exit code 2 (docs/api.md)."""
    from cotenant.cli.quick import quicken
    from cotenant.core.errors import CotenantError

    # Some versions of Typer carry a copy of click; the errors to catch are those that Typer itself raises.
    click = import_module(typer.BadParameter.__module__)

    quicken()
    asked = sys.argv[1:2]
    try:
        app = make_app(asked if asked and asked[0] in VERBS else VERBS)  # one verb alone is there sooner
        code = app(standalone_mode=False)
    except click.NoArgsIsHelpError as help_:
        typer.echo(help_.format_message())
        code = 2
    except click.ClickException as error:
        typer.echo(f"cotenant: {error.format_message()}", err=True)
        code = 2
    except CotenantError as error:
        typer.echo(f"cotenant: {' '.join(str(error).split())}", err=True)
        code = 3 if _unavailable(error) else 2
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("cotenant: interrupted", err=True)
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
