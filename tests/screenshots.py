"""Screenshots of every page of ``heddle serve`` in headless Chromium.

    python -m tests.screenshots --warehouse var/warehouse     # make screenshots

Each page is taken 1,280 and 390 pixels wide, light and dark, into ``var/screenshots``. Those that documents show
(:data:`SHOWN`) are also written to ``docs/images``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from heddle.cli.serve import listening, pages_of
from heddle.pages.connections import server_config

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "answers": "answers",
    "query": "query?name=airport_delay_1h",
    "plan": "./",
    "operations": "operations",
    "streams": "streams",
    "trends": "trends",
    "history": "history",
    "unknown": "nowhere",
}
SIZES = {1280: 1400, 390: 1600}
"""Heights by widths, in pixels."""
SHOWN = {"answers": 760, "query": 1400, "plan": 1400, "operations": 1400}
"""Heights of the pages that documents show."""


@contextmanager
def served(warehouse: str) -> Iterator[str]:
    """The address of a server of the pages of a warehouse."""
    import uvicorn

    place = listening("127.0.0.1", 0)
    server = uvicorn.Server(server_config(pages_of(warehouse, "127.0.0.1", "")))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{place.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


def take(chromium: str, address: str, file: Path, width: int, height: int, is_dark: bool) -> None:
    """Write one screenshot. Raises subprocess.CalledProcessError if Chromium fails."""
    file.parent.mkdir(parents=True, exist_ok=True)
    scheme = "--blink-settings=preferredColorScheme=0" if is_dark else "--blink-settings=preferredColorScheme=1"
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", scheme)
    command = (chromium, *options, f"--window-size={width},{height}", f"--screenshot={file}", address)
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def main() -> int:
    """Take all screenshots; 2 if there is no Chromium."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warehouse", default=str(ROOT / "var" / "warehouse"))
    parser.add_argument("--documents", action="store_true", help="also write docs/images")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print("there is no Chromium: apt install chromium", file=sys.stderr)
        return 2
    with served(arguments.warehouse) as address:
        for name, page in PAGES.items():
            for width, height in SIZES.items():
                for is_dark in (False, True):
                    file = ROOT / "var" / "screenshots" / f"{name}_{width}_{'dark' if is_dark else 'light'}.png"
                    take(chromium, f"{address}/{page}", file, width, height, is_dark)
            if arguments.documents and name in SHOWN:
                take(chromium, f"{address}/{page}", ROOT / f"docs/images/{name}_page.png", 1280, SHOWN[name], False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
