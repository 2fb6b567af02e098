"""Draw docs/figures/bytes.svg: where the bytes of a run go, from the table in docs/communication.md."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIGURE = ROOT / "docs" / "figures" / "bytes.svg"
ROUNDS_AND_CLIENTS = 400 * 10
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
WIDTH, LEFT, BAR = 980, 300, 24
COLORS = {"up: indices": "#e08a4a", "up: values": "#f3c39b", "down: indices": "#0072b2", "down: values": "#8cc3e6"}
ALL = {
    "uncompressed": "uncompressed",
    "float32 up, dense down (the paper)": "FedCEF, r = 1%, as in the paper",
    "float32, increment": "the same, lossless increments down",
    "uniform4, lossy 0.02": "4 bits a value, 2% down",
}
SMALL = {
    "float32, increment": "lossless increments",
    "uniform4, increment": "values in 4 bits",
    "uniform4, lossy 0.05": "downlink compressed, 5%",
    "uniform4, lossy 0.02": "downlink compressed, 2%",
    "sign, lossy 0.02": "signs for values",
}


def measured() -> dict[str, list[int]]:
    """Bytes of one client and round by scheme: indices and values up, indices and values down."""
    rows: dict[str, list[int]] = {}
    for line in (ROOT / "docs/communication.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| \n").split("|")]
        if len(cells) == 10 and re.fullmatch(r"[\d,]+", cells[1]):
            rows[cells[0]] = [int(cells[column].replace(",", "")) for column in (1, 2, 5, 6)]
    return rows


def panel(top: float, title: str, names: dict[str, str], rows: dict[str, list[int]]) -> list[str]:
    """Bars on one linear scale, each with its total."""
    gigabytes = {name: [part * ROUNDS_AND_CLIENTS / 1e9 for part in rows[name]] for name in names}
    scale = (WIDTH - LEFT - 120) / max(map(sum, gigabytes.values()))
    drawn = [f'<text x="30" y="{top}" font-size="17" font-weight="650">{title}</text>']
    for index, (name, label) in enumerate(names.items()):
        y = top + 20 + index * (BAR + 12)
        drawn.append(f'<text x="{LEFT - 12}" y="{y + 17}" text-anchor="end" font-size="14">{label}</text>')
        x = float(LEFT)
        for part, color in zip(gigabytes[name], COLORS.values(), strict=True):
            drawn.append(f'<rect x="{x:.1f}" y="{y}" width="{part * scale:.1f}" height="{BAR}" fill="{color}"/>')
            x += part * scale
        total = sum(gigabytes[name])
        text = f"{total:.1f} GB" if total >= 10 else f"{total:.2f} GB"
        drawn.append(f'<text x="{x + 9:.1f}" y="{y + 17}" font-size="14" font-weight="600">{text}</text>')
    return drawn


def legend(top: float) -> list[str]:
    drawn, x = [], 30
    for name, color in COLORS.items():
        drawn.append(f'<rect x="{x}" y="{top - 12}" width="14" height="14" rx="2" fill="{color}"/>')
        drawn.append(f'<text x="{x + 21}" y="{top}" font-size="13.5" fill="#3d454e">{name}</text>')
        x += 140
    return drawn


def drawing() -> str:
    rows = measured()
    second = 48 + 20 + len(ALL) * (BAR + 12) + 42
    bottom = second + 20 + len(SMALL) * (BAR + 12) + 36
    height = bottom + 28
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" font-family="{FONT}" fill="#1b1f24">',
        "<title>Where the bytes of a run go</title>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="12" fill="#ffffff" stroke="#dfe3e8"/>',
        *panel(48, "A whole run: CIFAR-10, 400 rounds, 10 clients, both directions", ALL, rows),
        *panel(second, "The last ones again, enlarged", SMALL, rows),
        *legend(bottom),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    FIGURE.write_text(drawing(), "utf-8")
