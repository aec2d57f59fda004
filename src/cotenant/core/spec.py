"""The little language `name:key=value,key=value` used for policies, placements and generators."""

from __future__ import annotations

from dataclasses import dataclass, field

from cotenant.core.errors import InputError, unknown

Value = str | int | float | bool | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Spec:
    """A name and its parameters, as the user wrote them."""

    name: str
    params: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Read `tiresias-l:threshold=3200,queues=2`. A value may hold `[a,b]` lists."""
        name, _, rest = text.partition(":")
        if not name.strip():
            raise InputError(f"'{text}' has no name before ':'; write NAME or NAME:key=value,...")
        params: dict[str, str] = {}
        for part in split_outside_brackets(rest):
            key, eq, value = part.partition("=")
            if not eq or not key.strip() or not value.strip():
                raise InputError(f"'{part}' in '{text}' is not key=value")
            if key.strip() in params:
                raise InputError(f"'{text}' gives {key.strip()} twice; leave one of them out")
            params[key.strip()] = value.strip()
        return cls(name.strip(), params)

    def __str__(self) -> str:
        if not self.params:
            return self.name
        return self.name + ":" + ",".join(f"{k}={v}" for k, v in self.params.items())


def split_outside_brackets(text: str) -> list[str]:
    """Split at commas that are not inside `[...]`; blanks vanish."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    parts.append(current)
    return [part.strip() for part in parts if part.strip()]


def split_specs(text: str) -> list[str]:
    """Split a list of specs `fifo,tiresias-l:queues=2,threshold=3200,srsf` at the commas between specs.

    A part with `=` and no `:` before it continues the parameters of the spec before.
    """
    specs: list[str] = []
    for part in split_outside_brackets(text):
        head = part.split("=", 1)[0]
        if "=" in part and ":" not in head and specs and ":" in specs[-1]:
            specs[-1] += "," + part
        else:
            specs.append(part)
    return specs


def typed_params(spec: Spec, defaults: dict[str, Value], what: str) -> dict[str, Value]:
    """Check the parameters of `spec` against `defaults`, whose types say how to read each value."""
    values = dict(defaults)
    for key, text in spec.params.items():
        if key not in defaults:
            if not defaults:
                raise InputError(f"{what} '{spec.name}' takes no parameters, but '{key}' was given")
            raise unknown(f"parameter of {what} '{spec.name}'", key, defaults)
        values[key] = _convert(text, defaults[key], f"{what} '{spec.name}': {key}={text}")
    return values


def _convert(text: str, like: Value, where: str) -> Value:
    try:
        if isinstance(like, bool):
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        if isinstance(like, int):
            return int(text)
        if isinstance(like, float):
            value = float(text)
            if value != value:
                raise ValueError
            return value
        if isinstance(like, tuple):
            return tuple(float(part) for part in text.strip("[]").replace("/", ",").split(",") if part.strip())
    except (ValueError, KeyError):
        kind = {bool: "true or false", int: "a whole number", float: "a number", tuple: "a list like [1,2]"}
        raise InputError(f"{where} is not {kind[type(like)]}") from None
    return text
