"""What looks like a secret is masked, by name and by form; what is plainly harmless stays readable."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.masking import MASK, masked_arguments, masked_setting, masked_text

SECRET = "s3cr3tV4lue9"
HF, GH = "hf_" + "aB3dE5gH" * 4, "ghp_" + "aB3dE5gH" * 4
AWS = "AKIA" + "ABCDEFGH12345678"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["--api-key", SECRET], ["--api-key", MASK]),
        ([f"--api-key={SECRET}"], [f"--api-key={MASK}"]),
        ([f"--api_key={SECRET}"], [f"--api_key={MASK}"]),
        (["--token", SECRET, "x.py"], ["--token", MASK, "x.py"]),
        (["--hf-token", SECRET], ["--hf-token", MASK]),
        (["--hfToken", SECRET], ["--hfToken", MASK]),
        (["-password", SECRET], ["-password", MASK]),
        (["--db-password", "12345"], ["--db-password", MASK]),
        ([f"trainer.logger.api_key={SECRET}"], [f"trainer.logger.api_key={MASK}"]),
        ([f"+wandb.key={SECRET}"], [f"+wandb.key={MASK}"]),
        ([f"WANDB_API_KEY={SECRET}"], [f"WANDB_API_KEY={MASK}"]),
        (["--aws-secret-access-key", SECRET], ["--aws-secret-access-key", MASK]),
        (["--data", "s3://user:pw@host/x"], ["--data", f"s3://{MASK}@host/x"]),
        (["--data=http://u:p@w@h:80/x"], [f"--data=http://{MASK}@h:80/x"]),
        (["https://x@github.com/a"], [f"https://{MASK}@github.com/a"]),
        (["https://h/a?sig=abcdef&x=1"], [f"https://h/a?sig={MASK}&x=1"]),
        (["https://h/a?b=1&X-Amz-Signature=abcdef"], [f"https://h/a?b=1&X-Amz-Signature={MASK}"]),
        (["--model", HF], ["--model", MASK]),
        ([f"prefix:{GH}"], [f"prefix:{MASK}"]),
        ([AWS], [MASK]),
        (["github_pat_" + "a1" * 12], [MASK]),
        (["sk-proj-" + "a1" * 12], [MASK]),
        (["xoxb-" + "1234567890"], [MASK]),
        (["eyJhbGciOiJI.eyJzdWIiOiIx.abc"], [MASK]),
        (["-H", f"Authorization: Bearer {SECRET}"], ["-H", f"Authorization: Bearer {MASK}"]),
        (["-H", f"X-Api-Key: {SECRET}"], ["-H", f"X-Api-Key: {MASK}"]),
        ([f'{{"api_key": "{SECRET}", "lr": 1}}'], [f'{{"api_key": "{MASK}", "lr": 1}}']),
        (["--config", f"db.password: {SECRET}"], ["--config", f"db.password: {MASK}"]),
        (["--token", "--lr", "3"], ["--token", "--lr", "3"]),
    ],
)
def test_secrets_are_masked(given, shown):
    assert list(masked_arguments(given)) == shown


@pytest.mark.parametrize(
    "line",
    [
        "train.py --num-tokens 128 --max_tokens=4096 --tokens 5 --token-dim 64 --tokenizer gpt2 --tokenizer-path /a/b",
        "--pad-token <pad> --eos-token </s> --mask_token=[MASK] --n-token 3 --token_type=bpe --use-token true --token 128",
        "--key name --keys a,b --primary-key id --keyframes 4 --monkey x --bypass --passes 3 --password-field=",
        "--author me --authors x --secretary x --compass 1 --sort-key len key=value hotkey=x",
        "https://host/a?b=c&keyword=d http://localhost:8080/x git@github.com:a/b ssh://git@github.com/a/b /a/b@2x.png user@host:/data",
        "--basic --bearer-count 3 hf_transfer sk-learn skip-connections AKIA hf-internal-testing/tiny pat@x npm_config",
        "model=meta-llama/Llama-3.1-8B lr=3e-4 +trainer.max_steps=10 ~callbacks --seed=1234567 dataset.split=train[:10%]",
        "python -m torch.distributed.run --nproc-per-node=2 --rdzv-endpoint=localhost:29500",
    ],
)
def test_what_is_plainly_harmless_stays(line):
    assert " ".join(masked_arguments(line.split())) == line


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("TOKENIZERS_PARALLELISM", "false", "false"),
        ("CUDA_URL", "http://u:pw@h", f"http://{MASK}@h"),
        ("TORCH_HF_TOKEN", SECRET, MASK),
        ("PYTORCH_PASSWORD", "1234", MASK),
        ("CUDA_VISIBLE_DEVICES", "0,1", "0,1"),
        ("TORCH_LOGS", "+dynamo", "+dynamo"),
        ("TORCHINDUCTOR_CACHE_DIR", "/tmp/x", "/tmp/x"),
        ("OMP_NUM_THREADS", "4", "4"),
    ],
)
def test_variables(name, value, shown):
    assert masked_setting(name, value) == shown


def test_error_texts():
    text = f"OSError: 401 for https://u:{SECRET}@hub/x with token={SECRET}, password='{SECRET}' and {HF}; api_key={SECRET}"
    shown = masked_text(text + f" access_token: {SECRET}")
    assert HF not in shown and shown.count(SECRET) == 1 and "401 for https://***@hub/x" in shown


@given(st.lists(st.text(max_size=60), max_size=8))
def test_any_command_line_keeps_its_length(arguments):
    assert len(masked_arguments(arguments)) == len(arguments)


LONG = (
    "a://",
    "Bearer ",
    "password",
    "x-",
    "eyJ",
    "=",
    "-",
    "ghp_",
    "?key",
    "password: ",
    "http://a:",
    "-----BEGIN PRIVATE KEY-----",
    "sk-",
)


@pytest.mark.parametrize("part", LONG)
def test_hostile_texts_take_linear_time(part):
    def cost_s(length):
        text = part * (length // len(part))
        began = time.process_time()
        masked_text(text), masked_arguments([text, text])
        return time.process_time() - began

    assert cost_s(40_000) < 20 * max(cost_s(10_000), 0.02)
