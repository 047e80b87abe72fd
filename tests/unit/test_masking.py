"""What looks like a secret is masked, by name and by form; what is plainly harmless stays readable."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.masking import (
    _COMMON_SIGNS,
    _LOOKS,
    _SAID,
    _SIGNS,
    MASK,
    _has_sign,
    _looks,
    _masked_match,
    masked_arguments,
    masked_setting,
    masked_settings,
    masked_text,
    may_hold_secret,
    secret_values,
)

SECRET = "s3cr3tV4lue9"
HF, GH = "hf_" + "aB3dE5gH" * 4, "ghp_" + "aB3dE5gH" * 4
AWS = "AKIA" + "ABCDEFGH12345678"

LONG = (
    "a://",
    "Bearer ",
    "password",
    "x-",
    "eyJ",
    "=",
    "-",
    "ghp_",
    "AKIA",
    "hf_" + "aB3d" * 6,
    "https://u:p@h/?sig=x&key=",
    "Authorization: Basic ",
    "api_key",
    "token",
    "?key",
    "password: ",
    "http://a:",
    "-----BEGIN PRIVATE KEY-----",
    "sk-",
)


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


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (f"ValueError: bad login password='{SECRET} more'", f"ValueError: bad login password='{MASK}'"),
        (f"L['self'].access_token == '{SECRET}'", f"L['self'].access_token == '{MASK}'"),
        (f"client = Client(api_key='{SECRET}')", f"client = Client(api_key='{MASK}')"),
        (f"401 with Authorization: Basic {SECRET}=", f"401 with Authorization: Basic {MASK}"),
        (f"requests.get('https://me:{SECRET}@host/x')", f"requests.get('https://{MASK}@host/x')"),
        (f"got {HF}, {GH} and {AWS}", f"got {MASK}, {MASK} and {MASK}"),
        ("nvapi-" + "a1B2" * 8, MASK),
        ("see hooks.slack.com/services/T01/B02/" + "a1B2" * 6, f"see {MASK}"),
        ("rk_live_" + "a1B2" * 6, MASK),
        ("GOCSPX-" + "a1B2" * 7, MASK),
        ("AccountName=x;AccountKey=" + "a1B2" * 15 + "==;", f"AccountName=x;{MASK};"),
        ("SG." + "a1B2" * 5 + "." + "c3D4" * 10, MASK),
        ("SK" + "0a1b2c3d" * 4, MASK),
        ("123456789:AA" + "a1B2" * 8, MASK),
        ("dapi" + "0a1b2c3d" * 4, MASK),
        ("hvs." + "a1B2" * 8, MASK),
        ("shpat_" + "0a1b2c3d" * 4, MASK),
        ("dckr_pat_" + "a1B2" * 6, MASK),
        ("L['password'] == 'a1B2c3D4'", f"L['password'] == '{MASK}'"),
        ("figd_" + "a1B2" * 10, MASK),
        ("dp.pt." + "a1B2" * 10, MASK),
        ("patA1b2C3d4E5f6G7." + "0a1b2c3d" * 8, MASK),
        ("ntn_" + "a1B2" * 11, MASK),
        ("sq0csp-" + "a1B2" * 10, MASK),
        ("sntrys_" + "a1B2" * 15, MASK),
        ("HRKU-" + "a1B2" * 9, MASK),
        ("nfp_" + "a1B2" * 9, MASK),
        ("fo1_" + "a1B2" * 11, MASK),
        ("glcbt-64_" + "a1B2" * 5, MASK),
        ("sbp_" + "0a1b2c3d" * 5, MASK),
        ("A1b2C3d4E5f6G7.atlasv1." + "a1B2" * 15, MASK),
        ("ATBB" + "a1B2" * 8, MASK),
        ("LTAI" + "a1B2" * 5, MASK),
        ("CCIPAT_" + "a1B2" * 5 + "_" + "0a1b2c3d" * 5, MASK),
        ("sk.eyJ1Ijoi" + "a1B2" * 8 + "." + "a1B2" * 5, MASK),
        ("bot123456789:AA" + "a1B2" * 8 + "/send", f"bot{MASK}/send"),
        ("https://fn.example.net/run?code=" + "a1B2" * 13 + "==", f"https://fn.example.net/run?code={MASK}"),
        ("x.webhook.office.com/webhookb2/" + "0a1b2c3d" * 5 + "@0a1b/IncomingWebhook/" + "0a1b2c3d" * 4, f"x.{MASK}"),
        ("Private-Lines: 1\n" + "a1B2" * 12 + "\nPrivate-MAC: " + "0a1b2c3d" * 8, f"{MASK}-MAC: {MASK}"),
        (f"PRIVATE-TOKEN: {SECRET}", f"PRIVATE-TOKEN: {MASK}"),
        (f"client-key-data: {SECRET}==", f"client-key-data: {MASK}"),
        (f"<password>{SECRET}</password>", f"<password>{MASK}</password>"),
        (f"sshpass -p {SECRET} ssh h", f"sshpass -p {MASK} ssh h"),
        (f"mysql -u root -p{SECRET} db", f"mysql -u root -p{MASK} db"),
        (f"Authorization: SSWS 00{SECRET}1", f"Authorization: {MASK}"),
    ],
)
def test_messages_and_source_lines(given, shown):
    assert masked_text(given) == shown


@pytest.mark.parametrize(
    "text",
    [
        "hf_Reformer hf_GPT2_large hf_T5_generate npm_config_registry r8_quantized_linear api_org_x",  # names of torchbench among them
        "client = Client(password=args.password, api_key=api_key, access_token=self.tokens[0], secret=read('x'))",
        "def login(password: str, api_key: Optional[str] = None, secret: bytes = b'', access_token: torch.Tensor = x):",
        "api_key = os.environ['KEY']",
        "password = getpass.getpass('Password: ') or os.environ['PASSWORD']",
        "per token log_probs_sum, basic block_2d, Basic BatchNormalization, token embedding_dim",
        "GB0170 0123456789abcdef0123456789abcdef f32[4, 8][8, 1]cuda:0 /home/u/keys/token_model.py:12 torch.Size([4, 8]) s77 == 3",
        "fxgraph key: fa3c2b1d4e5f60718293a4b5c6d7e8f9a0b1c2d3e4f5a6b7c8d9e0f1a2b3c4d5 cache_key=fwxyz123 dispatch_key=CUDA",
        "L['self'].num_tokens == 128 and len(L['keys']) == 2 and L['secret'] == 3",
        "https://docs.pytorch.org/docs/stable/x.html?highlight=key#torch.compile http://localhost:8080/a@b",
        "?code=GB0170 exit_code=1 mysql -p 3306 <password></password> pat.sub(x) ntn_layers fo1_proj sbp_0",
    ],
)
def test_what_is_no_secret_stays_in_messages_and_source(text):
    assert masked_text(text) == text


@given(
    st.sampled_from([*LONG, "a", "'", " ", "1", "Z"]).flatmap(
        lambda part: st.lists(st.sampled_from([part, *LONG, "b2", "=", ":"]), max_size=12)
    )
)
def test_the_quick_look_misses_nothing(parts):
    text = "".join(parts)
    assert masked_text(text) == _SAID.sub(_masked_match, _LOOKS.sub(_looks, text))


@given(st.lists(st.sampled_from([*_SIGNS, *(word for word, _ in _COMMON_SIGNS), *LONG, "7", "X", "é"]), max_size=6))
def test_what_is_remembered_of_texts_with_other_digits_hides_no_sign(parts):
    text = "".join(parts)
    assert may_hold_secret(text) == _has_sign(text.lower(), _SIGNS)


@pytest.mark.parametrize("form", [more.pattern for _, more in _COMMON_SIGNS])
def test_signs_that_are_expressions_take_all_digits_alike(form):
    assert not re.search("[1-9]", re.sub(r"\{\d[\d,]*\}|0-9", "", form))


def test_the_quick_look_does_not_take_every_kernel_of_triton_for_a_secret():
    assert not may_hold_secret("triton_meta={'signature': {'in_ptr0': '*fp32', 'xnumel': 'i32'}}")
    assert may_hold_secret("https://s3/x?X-Amz-Signature=0123456789abcdef")


@given(st.lists(st.text(max_size=60), max_size=8))
def test_any_command_line_keeps_its_length(arguments):
    assert len(masked_arguments(arguments)) == len(arguments)


@pytest.mark.parametrize("part", LONG)
def test_hostile_texts_take_linear_time(part):
    def cost_s(length):
        text = part * (length // len(part))
        began = time.process_time()
        masked_text(text), masked_arguments([text, text])
        return time.process_time() - began

    # Four times as long: a quadratic search takes sixteen times as long.
    assert cost_s(80_000) < 9 * max(cost_s(20_000), 0.02)


def test_a_key_behind_a_login_of_an_issuer_and_what_is_known_from_variables_are_masked():
    assert masked_arguments(["t.py", "--wandb-login", "q1w2e3r4t5", "--login", "me"]) == ("t.py", "--wandb-login", MASK, "--login", "me")
    known = secret_values(
        {
            "WANDB_API_KEY": "q1w2e3r4t5",
            "MY_PASSWORD": "correct",
            "AWS_CREDENTIALS": "/home/me/keys",
            "HOME": "/home/me",
            "API_KEY": "12345678",
        }
    )
    assert known == ("q1w2e3r4t5",)
    assert masked_arguments(["t.py", "--as", "q1w2e3r4t5", "x=q1w2e3r4t5!"], known) == ("t.py", "--as", MASK, f"x={MASK}!")
    assert masked_settings({"TORCH_X": "a q1w2e3r4t5"}, known) == {"TORCH_X": f"a {MASK}"}
