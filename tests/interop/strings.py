"""Backend strings of every kind, good and bad, the same ones each time."""

from __future__ import annotations

import random

LETTERS = {"sglang": "dtp", "vllm": "dtp", "fsdp": "dtc", "megatron": "dtpce", "archon": "dtpce"}
_SIZES = ("1", "1", "2", "2", "2", "3", "4", "4", "8", "16")
_ODD_SIZES = ("0", "02", "", "1048577", "x")


def strings(count: int, seed: int = 4) -> list[str]:
    """`count` different strings."""
    source = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[_spec(source)] = None
    return list(found)


def _spec(source: random.Random) -> str:
    backend = source.choice(list(LETTERS))
    name = source.choice(["", "", "", "[actor]", "[r_1]"] + ["[1a]", "[]"] * (_rarely(source)))
    letters = "dtpce" if source.random() < 0.15 else LETTERS[backend]
    folds = backend in ("megatron", "archon") or _rarely(source)
    if folds and source.random() < 0.5:
        body, name = _folded(source), name if _rarely(source) else ""
    else:
        body = _dims(source, letters)
    text = f"{backend}{name}:{body}"
    if _rarely(source):
        text = source.choice([body, f"deepspeed:{body}", f"{text}+fsdp:d2", f"{text}|fsdp:d2"])
    if _rarely(source):
        place = source.randrange(len(text) + 1)
        text = text[:place] + source.choice([" ", "\t", "\n", ".", "d", ":"]) + text[place:]
    return text


def _rarely(source: random.Random) -> bool:
    return source.random() < 0.06


def _folded(source: random.Random) -> str:
    """attn and ffn, often with world sizes that agree."""
    attn = _dims(source, "dtpce" if _rarely(source) else "dtpc")
    ffn = _dims(source, "dtpce" if _rarely(source) else "te")
    form = source.choice(["({})", "({})", "({})", "{}", "({}", "{})"])
    return form.format(f"attn:{attn}|ffn:{ffn}")


def _dims(source: random.Random, letters: str) -> str:
    chosen = [letter for letter in letters if source.random() < 0.45] or [source.choice(letters)]
    source.shuffle(chosen)
    if _rarely(source):
        chosen.append(source.choice(letters + "m"))
    sizes = _ODD_SIZES if source.random() < 0.03 else _SIZES
    return "".join(letter + source.choice(sizes) for letter in chosen)
