"""The command line. One file per verb; heavy imports happen inside the verbs, so that --help is instant."""

from __future__ import annotations

import sys
from importlib import import_module

import typer

from cotenant.cli import (
    audit,
    backup,
    cancel,
    compare,
    doctor,
    drain,
    estimator,
    events,
    generate,
    hold,
    login,
    logs,
    nodes,
    policies,
    policy,
    profile,
    profiles,
    ps,
    resume,
    serve,
    set_,
    show,
    simulate,
    submit,
    token,
    top,
    traces,
    wait,
    whatif,
    why,
)

app = typer.Typer(
    name="cotenant",
    help="The scheduler for shared GPU clusters: simulate, compare and explain.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("simulate")(simulate.simulate)
app.command("compare")(compare.compare)
app.command("policies")(policies.policies)
app.command("generate")(generate.generate)
app.add_typer(traces.app, name="traces")
app.add_typer(profiles.app, name="profiles")
app.add_typer(estimator.app, name="estimator")
app.command("profile")(profile.profile)
app.command("why")(why.why)
app.command("serve")(serve.serve)
app.command("submit", cls=submit.AfterDashes)(submit.submit)
app.command("ps")(ps.ps)
app.command("show")(show.show)
app.command("logs")(logs.logs)
app.command("cancel")(cancel.cancel)
app.command("hold")(hold.hold)
app.command("resume")(resume.resume)
app.command("set")(set_.set_)
app.command("wait")(wait.wait)
app.command("top")(top.top)
app.command("nodes")(nodes.nodes)
app.command("drain")(drain.drain)
app.command("events")(events.events)
app.add_typer(policy.app, name="policy")
app.command("whatif")(whatif.whatif)
app.add_typer(token.app, name="token")
app.command("login")(login.login)
app.command("audit")(audit.audit)
app.command("backup")(backup.backup)
app.command("doctor")(doctor.doctor)


def _version(value: bool) -> None:
    if value:
        from cotenant import __version__

        typer.echo(f"cotenant {__version__}")
        raise typer.Exit


@app.callback()
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
    from cotenant.core.errors import CotenantError

    # Some versions of Typer carry a copy of click; the errors to catch are those that Typer itself raises.
    click = import_module(typer.BadParameter.__module__)

    try:
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
