"""The contract with SGLang holds for the installed one, and a doctored name fails with the right words."""

import subprocess
import sys

import pytest

from whiflash_sglang.contract import ContractError, check
from whiflash_sglang.contract_table import REQUIREMENTS, SGLANG_VERSION, Requirement


def test_the_installed_sglang_keeps_the_contract():
    check()


@pytest.mark.parametrize("number", range(len(REQUIREMENTS)))
def test_every_requirement_is_one_that_can_fail(number):
    requirement = REQUIREMENTS[number]
    doctored = requirement._replace(name=requirement.name + "_gone")
    with pytest.raises(ContractError):
        check([doctored])


@pytest.mark.parametrize(
    ("requirement", "said"),
    [
        (Requirement("sglang.srt.gone", "f"), "module sglang.srt.gone"),
        (
            Requirement(
                "sglang.srt.speculative.eagle_worker_common", "run_eagle_verify", ("batch", "colour")
            ),
            "parameter(s) colour of sglang.srt.speculative.eagle_worker_common.run_eagle_verify",
        ),
        (
            Requirement("sglang.srt.speculative.eagle_info", "EagleDraftInput", (), ("gone",)),
            "member(s) gone of sglang.srt.speculative.eagle_info.EagleDraftInput",
        ),
    ],
)
def test_a_missing_name_is_reported_with_the_version_to_install(requirement, said):
    with pytest.raises(ContractError) as error:
        check([requirement])
    assert said in str(error.value)
    assert f"Install sglang=={SGLANG_VERSION}" in str(error.value)


DOCTORED = """
from whiflash_sglang.cpu.environment import prepare
prepare("cpu")
from whiflash_sglang import contract, contract_table
gone = contract_table.Requirement("sglang.srt.speculative.spec_info", "SpeculativeAlgorithm.gone")
contract.check.__defaults__ = ((gone,),)
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.plugins.hook_registry import HookRegistry
ours = [h for hooks in HookRegistry._hooks.values() for _, h, _ in hooks if "whiflash" in h.__module__]
assert not ours, ours
from sglang.srt.server_args import ServerArgs
ServerArgs(model_path={model!r}).resolve_once()
print("others are undisturbed")
ServerArgs(model_path={model!r}, speculative_algorithm="WHIFLASH").resolve_once()
"""


def test_with_a_broken_contract_a_user_of_whiflash_reads_the_reason_and_others_are_undisturbed():
    from engine import tiny

    code = DOCTORED.format(model=str(tiny.target()))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert "others are undisturbed" in done.stdout, done.stderr[-2000:]
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "SpeculativeAlgorithm.gone" in last
    assert SGLANG_VERSION in last
