"""The names of arms, as ``--compare`` takes them and as reports print them."""

from __future__ import annotations

from whiflash_sglang.config import AUTO, ROUTERS, tree_budget

PLAIN = "plain"
SGLANG_EAGLE3 = "sglang:eagle3"
DRAFTERS_ALONE = ("whiflash:eagle3", "whiflash:dflash")  # WHIFLASH fixed to one drafter

# Names that this benchmark will know one day, by what stands before the colon.
_NOT_YET = ("rate", "whiflash:rate")


def whiflash_arm(router: str) -> str:
    """The name of WHIFLASH's arm with that router."""
    return f"whiflash:{router}"


def parse_arm_names(text: str) -> list[str]:
    """Report names of the arms in a comma-separated list, in its order.

    ``none`` is ``plain``; a router's name alone is ``whiflash:<router>``; ``ddtree:32`` is
    DDTree alone with a budget of 32, whatever pair the other arms have; so is ``ddtree:auto``.

    Raises:
        ValueError: a name that is unknown, cannot be run here, or stands there twice.
    """
    names: list[str] = []
    for written in text.split(","):
        name = _report_name(written.strip().lower())
        if name in names:
            raise ValueError(f"--compare is {text!r}: it names the arm {name} twice")
        names.append(name)
    return names


def tree_budget_of(name: str) -> int | str | None:
    """N of ``ddtree:N`` or ``whiflash:ddtree:N``: DDTree alone with a budget of its own; None of other names."""
    router, _, budget = name.removeprefix("whiflash:").partition(":")
    return tree_budget(budget) if router == "ddtree" and (budget == AUTO or budget.isdecimal()) else None


def _report_name(written: str) -> str:
    if written in (PLAIN, "none"):
        return PLAIN
    if written == SGLANG_EAGLE3:
        return written
    if written.removeprefix("whiflash:") in ROUTERS or tree_budget_of(written) is not None:
        return whiflash_arm(written.removeprefix("whiflash:"))
    if written == "sglang:dflash":
        raise ValueError(
            "--compare names 'sglang:dflash': SGLang's own DFLASH needs a GPU; not in this version"
        )
    if written in _NOT_YET or written.startswith(tuple(f"{name}:" for name in _NOT_YET)):
        raise ValueError(f"--compare names {written!r}: not in this version")
    known = ", ".join((PLAIN, *ROUTERS, SGLANG_EAGLE3))
    raise ValueError(f"--compare names {written!r}, which is no arm; choose from {known}")
