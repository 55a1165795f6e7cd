"""The pages in a real Chromium: groups light up, tables sort, nothing is wider than the window."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from areal_conf import plan
from areal_conf.report.page import Column, plan_page, table_page
from areal_conf.report.results import results_page
from areal_conf.sweeps.results.summary import results

pytestmark = pytest.mark.browser

PPO = {
    "rollout": {"backend": "sglang:d2t4"},
    "actor": {"backend": "megatron:d2t2p2e2"},
    "ref": {"scheduling_strategy": {"type": "colocation", "target": "actor"}},
    "cluster": {"n_nodes": 2, "n_gpus_per_node": 8},
}
SHOTS = os.environ.get("AREAL_CONF_SCREENSHOTS")
"""A directory for screenshots to look at."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    driver, program = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or program is None:
        pytest.skip("no Chromium with its driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    flags = "headless no-sandbox disable-gpu disable-quic no-first-run disable-sync"
    for flag in f"{flags} disable-background-networking disable-component-update".split():
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(driver)
    window = webdriver.Chrome(options=options, service=service)
    yield window
    window.quit()


def opened(browser: Any, folder: Path, text: str, width: int = 1280, scheme: str = "light") -> None:
    page = folder / "page.html"
    page.write_text(text)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.get(page.as_uri())


def shot(browser: Any, name: str) -> None:
    if SHOTS:
        browser.save_screenshot(str(Path(SHOTS) / f"{name}.png"))


def script(browser: Any, code: str) -> Any:
    return browser.execute_script(code)


def test_a_rank_lights_its_groups(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver import ActionChains

    opened(browser, tmp_path, plan_page(plan(PPO)))
    actor = plan(PPO).engines["actor"]
    (rank,) = browser.find_elements("css selector", '[title^="actor, rank 0:"]')
    ActionChains(browser).move_to_element(rank).perform()
    lit = {
        letter: sorted(
            script(
                browser,
                f"return [...document.querySelectorAll('.rank.g-{letter}')].map(e => e.title)",
            )
        )
        for letter in "dtp"
    }
    groups = {"d": actor.data_groups(), "t": actor.tensor_groups(), "p": actor.pipeline_groups()}
    for letter, titles in lit.items():
        ranks = next(group for group in groups[letter] if 0 in group)
        wanted = [f"actor, rank {rank}:" for rank in ranks if rank]
        assert [title.split(":")[0] + ":" for title in titles] == wanted
    shot(browser, "plan-lit")
    ActionChains(browser).move_by_offset(0, 400).perform()


def test_a_table_sorts_by_number_and_by_text(browser: Any, tmp_path: Path) -> None:
    rows = [{"n": 10, "s": "b"}, {"n": 9, "s": "c"}, {"n": None, "s": "a"}]
    columns = [Column("n", "n", number=True), Column("s", "s")]
    opened(browser, tmp_path, table_page("t", columns, rows))
    read = "return [...document.querySelectorAll('tbody tr')].map(r => r.cells[1].textContent)"
    for heading, wanted in (("n", "cba"), ("n", "abc"), ("s", "abc"), ("s", "cba")):
        place = 0 if heading == "n" else 1
        browser.find_elements("css selector", "th button")[place].click()
        assert "".join(script(browser, read)) == wanted


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window(
    browser: Any, tmp_path: Path, width: int, scheme: str
) -> None:
    opened(browser, tmp_path, plan_page(plan(PPO)), width, scheme)
    assert script(browser, "return document.documentElement.scrollWidth") <= width
    dark = script(browser, "return getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(21, 24, 28)") is (scheme == "dark")
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    shot(browser, f"plan-{scheme}-{width}")


def test_results_fit_a_telephone(browser: Any, tmp_path: Path) -> None:
    spec = "megatron:(attn:d2t4|ffn:t2e4)"
    jobs = [
        {
            "job": n,
            "overrides": [f"actor.backend={spec}", "note=<b>x</b>"],
            "layouts": {"actor": spec, "<i>": "fsdp:d8"},
            "state": "completed",
            "return_value": 3 - n,
        }
        for n in range(3)
    ]
    (tmp_path / "layouts.json").write_text(json.dumps({"jobs": jobs}))
    page = results_page(results(tmp_path))
    for scheme in ("light", "dark"):
        opened(browser, tmp_path, page, width=400, scheme=scheme)
        shot(browser, f"results-{scheme}")
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= 400
    assert browser.execute_script("return document.querySelectorAll('b, i').length") == 0
    numbers = [cell.text for cell in browser.find_elements("css selector", "td:nth-child(2)")]
    assert numbers == ["2", "1", "0"]
