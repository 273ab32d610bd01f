"""Numbers of things in the words of people."""


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun: "1 start", "2 starts"; `several` is a plural without an s."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def often(number: int) -> str:
    """Return how often something happened: "once", "3 times"."""
    return "once" if number == 1 else f"{number} times"
