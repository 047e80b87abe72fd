"""What is taken out of a text, what stays, and that a name always gets the same pseudonym."""

import json
import random
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.masking import MASK
from dynadiag.model.run import Run, RunInfo
from dynadiag.share.bundle import redacted_svg
from dynadiag.share.involved import LEFT_OUT, Involved
from dynadiag.share.redaction import Redactor


def redacted(*texts):
    redactor = Redactor()
    for text in texts:
        redactor.learn(text)
    return [redactor.text(text, "x") for text in texts]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ('File "/home/alice/p/x.py", line 3', 'File "/home/user1/p/x.py", line 3'),
        ("# if x:  # ome/alice/p/x.py:4 in f", "# if x:  # ome/user1/p/x.py:4 in f"),
        (r"C:\Users\alice\x.py", r"C:\Users\user1\x.py"),
        ("/tmp/torchinductor_alice/ab/cd.py", "/tmp/torchinductor_user1/ab/cd.py"),
        ("bob@acme.com and eve@acme.com", "person1@example.com and person2@example.com"),
        ("10.1.2.3 and 10.1.2.4 and 10.1.2.3", "192.0.2.1 and 192.0.2.2 and 192.0.2.1"),
        ("tcp://gpu-17.acme:29500", "tcp://host1:29500"),
        ("HOSTNAME=dgx-7 said dgx-7", "HOSTNAME=host1 said host1"),
        ("fe80::1ff:fe23:4567:890a", "2001:db8::1"),
        ("L['self'].api_key == 'hunter2secret'", f"L['self'].api_key == '{MASK}'"),
        ("WANDB_KEY=abc123def", f"WANDB_KEY={MASK}"),
        ("Cookie: a=b; id=q1w2e3", f"Cookie: {MASK}"),
        ('"cookie": "a=b; id=q1w2e3"', f'"cookie": "{MASK}"'),
        ("login me password q1w2e3", f"login me password {MASK}"),
        ("curl --user=me:q1w2e3 x", f"curl --user=me:{MASK} x"),
        ("run --password hunter2 x", f"run --password {MASK} x"),
        ("got Zk3x9QpL7vT2mNa8Rw5Y from it", f"got {MASK} from it"),
        ("MTA7zXq9Kd3fLw2PvB8nYs4T.O5qDf0.y7iOnTcVAiTqnbtXSXFRO9O0q8WKLi5qJI4mij", MASK),
    ],
)
def test_people_machines_and_secrets_are_taken_out(given, shown):
    assert redacted(given) == [shown]


@pytest.mark.parametrize(
    "text",
    [
        "ConvolutionBackward0 MultiheadAttention2dForCausalLM Qwen2VLForConditionalGeneration",
        "_ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_",
        "fxtt7xaxj5ocsvhbwvbqx3fkqkbjzvgjdtdvkjvhfvq27ry2nyxi 0123456789abcdef0123456789abcdef sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n",
        "q@k.transpose(0, 1) + a@b.T aten::add c10::add std::vector 12:34:56 0/1 s77 == 3",
        "nvidia-cublas-cu12==12.8.4.1 cuDNN 9.10.2.21 version 1.2.3.4 127.0.0.1 0.0.0.0",
        "https://pytorch.org/docs https://github.com/pytorch/pytorch/issues/1 git@github.com:a/b",
        "self.local.x threading.local() obj.internal.f(x) token_type_ids: 'x' key='q_proj'",
        "'forward_pass': 'same_as_forward', 'pass_name': 'pattern_matcher', 'post_pass': 'fuse_attention_1'",
        "(primals_1: i64[4, 128][128, 1]cpu, tokens: f32[2], pad_token='[PAD]')  # PlainAOTInput(idx=0)",
        "login with password authentication, auth: 'basic', curl -u 1000:10 x, {'username': 'x', 'key': 'q_proj_1'}",
        "Cookie: see RFC 6265; 'Cookie': str, cookie: Optional[str] = None",
        'password = getpass.getpass("Password: ") or os.environ["PASSWORD"]',
    ],
)
def test_what_is_harmless_stays(text):
    assert redacted(text) == [text]


def test_two_paths_stay_two_paths_and_one_name_is_one_name():
    shown = redacted("/home/alice/x.py", "/home/carol/x.py", "alice ran /home/alice/y.py for carol")
    assert shown == ["/home/user1/x.py", "/home/user2/x.py", "user1 ran /home/user1/y.py for user2"]


def test_a_secret_is_found_again_where_nothing_says_what_it_is_and_where_it_was_cut():
    shown = redacted("api_key='Zx81kd02mmQ4'", "L['x'] == 'Zx81kd02mmQ4'", "got Zx81kd02mm...", "it ends in Zx81kd02")
    assert shown == [f"api_key='{MASK}'", f"L['x'] == '{MASK}'", f"got {MASK}...", f"it ends in {MASK}"]


def test_json_is_redacted_by_its_names_and_stays_json():
    redactor = Redactor()
    value = {
        "argv": ["t.py", "--token", "q1w2e3r4"],
        "env": {"DB_PASSWORD": "pw12"},
        "n": 3,
        "user": "carol",
        "said": ["carol", None, True],
    }
    redactor.learn_value(value)
    shown = redactor.value(value, "log")
    assert shown == {
        "argv": ["t.py", "--token", MASK],
        "env": {"DB_PASSWORD": f"{MASK}2"},
        "n": 3,
        "user": "user1",
        "said": ["user1", None, True],
    }
    assert sum(times for _, _, times in redactor.rows()) == 4 and "q1w2e3r4" not in repr(redactor.rows())


def test_names_that_become_one_stay_apart():
    value = {"hf_" + "aB3dE5gH" * 4: 1, "ghp_" + "aB3dE5gH" * 5: 2, "/home/alice/x": 3, "/home/carol/x": 4}
    redactor = Redactor()
    redactor.learn_value(value)
    shown = redactor.value({**value, f"{MASK} (2)": 5, "npm_" + "aB3dE5gH" * 4: 6}, "log")
    assert shown == {MASK: 1, f"{MASK}2": 2, "/home/user1/x": 3, "/home/user2/x": 4, f"{MASK} (2)": 5, f"{MASK}3": 6}


def test_drawings_are_written_again_and_foreign_ones_are_left_out():
    drawing = '<svg xmlns="http://www.w3.org/2000/svg" width="9"><title>t</title><text x="1">/home/alice/x &amp; <![CDATA[<]]></text></svg>'
    plain = drawing.replace("<![CDATA[<]]>", "&lt;")
    assert "/home/user1/x &amp; &lt;" in redacted_svg(plain, Redactor())
    for bad in (
        drawing,
        "<svg><script>alert(1)</script></svg>",
        "<svg",
        '<!DOCTYPE x [<!ENTITY a "b">]><svg>&a;</svg>',
        "<svg onload='x'/>",
    ):
        assert "left out" in redacted_svg(bad, Redactor()) and "alert" not in redacted_svg(bad, Redactor())


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=40),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    )
)
def test_any_json_keeps_its_shape(value):
    redactor = Redactor()
    redactor.learn_value(value)
    shown = redactor.value(value, "x")
    assert type(shown) is type(value) and json.loads(json.dumps(shown)) == shown


def test_a_comment_before_a_line_of_a_graph_is_no_guard():
    """The pattern for guards once reached over a line break, and took the comment for the source of the line below."""
    run = Run(info=RunInfo(cwd="/p"))
    text = "    # a comment of the graph\n    # File: /p/x.py:4 in f, code: secret_line(x)"
    assert Involved(run, {}).text(text) == f"    # a comment of the graph\n    # File: /p/x.py:4 in f, code: {LEFT_OUT}"
    assert Involved(run, {"/p/x.py": [(4, 4)]}).text(text) == text


DIGEST = "9f86d081884c7d659a2feaa0c55ad015"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (f"payload {DIGEST}, key {DIGEST}", f"payload {DIGEST}, key {MASK}"),
        (f"('{DIGEST}')", f"('{MASK}')"),
        (f"{DIGEST}  model.pt\n{DIGEST}", f"{DIGEST}  model.pt\n{MASK}"),
        (f"/cache/{DIGEST}/x.so and https://a.example.net/{DIGEST}/x", f"/cache/{DIGEST}/x.so and https://host1/{MASK}/x"),
        (f'KEY = "{DIGEST[:16]}" \\\n    "{DIGEST[16:]}"', f'KEY = "{MASK}" \\\n    "{MASK}2"'),
        (f'x = ("{DIGEST[:10]}"\n "{DIGEST[10:20]}"\n "{DIGEST[20:]}")', f'x = ("{DIGEST[:10]}"\n "{DIGEST[10:20]}"\n "{DIGEST[20:]}")'),
        ("sha256 fingerprint " + ":".join(re.findall("..", DIGEST)), "sha256 fingerprint " + ":".join(re.findall("..", DIGEST))),
        ("vP3+x9/Qk2==, uJ8kf02Lq+7tRz/4Wm1XbN6s", f"vP3+x9/Qk2==, {MASK}"),
    ],
)
def test_digests_stay_where_something_says_so_and_keys_go(given, shown):
    assert redacted(given) == [shown]


def test_a_value_is_a_digest_or_a_key_by_its_name():
    redactor = Redactor()
    value = {"has_payload": DIGEST, "x": DIGEST, "cache": [DIGEST], "key": "d3b07384-d113-4ec6-a7d4-0c2f6e9b1a55", "frame": "k1_index_12"}
    redactor.learn_value(value)
    shown = redactor.value(value, "log")
    assert shown == {"has_payload": DIGEST, "x": MASK, "cache": [DIGEST], "key": f"{MASK}2", "frame": "k1_index_12"}


def test_a_password_of_letters_is_found_again_unless_it_is_a_word():
    shown = redacted("mysql://me:qzxvkwjpfh@h/x", "said qzxvkwjpfh", "https://me:internal@h/x", "an internal error")
    assert [text.rpartition(" ")[2] for text in shown] == [f"mysql://{MASK}@host1/x", f"{MASK}2", f"https://{MASK}3@host1/x", "error"]
    assert "internal error" in shown[3]


PLACES = (
    "sshpass -p 'PW' ssh h",
    'sshpass -p "PW" ssh h',
    "sshpass -p'PW' ssh h",
    "sshpass -p PW ssh h",
    "postgres://bob:PW@h.example.net/d",
    "Authorization: Bearer PW",
    "the password is PW",
    "password PW",
    "Password for bob: PW",
    "pwd: PW",
    "secret is PW",
    "credentials bob:PW",
    "api key PW",
    "run -p PW x",
    "run --pass PW x",
    "['run', '-p', 'PW']",
    '["run", "--pass", "PW"]',
    "mysql -u bob -p PW",
    "redis-cli -a PW",
    "openssl rsa -passin pass:PW",
    "smbclient -U bob%PW //h/s",
)
MARKS = "!#$%&*+-=?^_~"


def password(draw):
    """Letters of both cases, digits and signs, as a password manager draws them."""
    kinds = [string.ascii_lowercase, string.ascii_uppercase, string.digits, MARKS]
    letters = [draw.choice(kind) for kind in kinds] + draw.choices("".join(kinds), k=draw.randint(8, 10))
    draw.shuffle(letters)
    return "".join(letters)


@pytest.mark.parametrize("place", PLACES)
def test_a_password_is_known_by_its_place_and_found_everywhere(place):
    draw = random.Random(11)
    drawn = [password(draw) for _ in range(100)]
    kept = [secret for secret in drawn if any(secret in shown for shown in redacted(place.replace("PW", secret), f"got {secret} again"))]
    assert len(kept) <= 1, kept


@pytest.mark.parametrize("option", ["-p", "-a", "--pass"])
def test_a_password_is_known_by_its_place_in_a_command_line(option):
    draw = random.Random(12)
    drawn = [password(draw) for _ in range(100)]
    kept = []
    for secret in drawn:
        redactor, value = Redactor(), {"argv": ["run", option, secret, "x"], "n": [secret]}
        redactor.learn_value(value)
        if secret in json.dumps(redactor.value(value, "x")) or json.dumps(secret)[1:-1] in json.dumps(redactor.value(value, "x")):
            kept.append(secret)
    assert len(kept) <= 1, kept


MADE_UP_PLACES = (
    'requests.get(url, auth=("anna", "PW"))',
    "HTTPBasicAuth('anna', 'PW')",
    'server.login("bot", "PW")',
    "SecretStr('PW')",
    'pw = ("cn=admin,dc=kite", "PW")',
    'ldap_bind = "cn=admin,dc=kite", "PW"',
    "L['login'] == ('anna', 'PW')",
    'creds = ["anna", "PW"]',
    'login(\n    user="anna",\n    password=\n        "PW",\n)',
    "stringData:\n  pw: PW",
    "h1 ansible_host=kite ansible_ssh_pass=PW",
    "ARG PIP_PASS=PW",
    "# my pw: PW",
    "# (pw PW)",
    "# Passwort: PW",
    "# Kennwort ist PW",
    "# mot de passe : PW",
    "# contraseña: PW",
    "# пароль PW",
    "# hasło: PW",
    "# 密码:PW",
    "# パスワード: PW",
    "secret is «PW»",
    "RuntimeError: bad password PW",
    "raised RuntimeError([ConstantVariable(str: 'bad password PW')])",
    "echo PW | sudo -S apt install x",
    "echo 'PW' | docker login -u anna --password-stdin",
    "kinit anna <<< 'PW'",
    "htpasswd -b f anna PW",
)


def made_up_password(draw):
    """A word with digits in it and some letters behind it, as people make them."""
    word = draw.choice(["0rchid", "p4nther", "w1nter", "S0lar", "g1raffe", "m00nlight"])
    while True:
        tail = "".join(draw.choices(string.ascii_letters + string.digits, k=draw.randint(4, 7)))
        if any(map(str.isupper, tail)) and any(map(str.isdigit, tail)):
            return word + tail


@pytest.mark.parametrize(
    "key",
    [
        "TBrS+CKZoHXx0Pw+mkXxwktZFLCQ8Vh0yna7dGcQXAu5nFsL9UdEye6IeyNzuS9a",  # two letters of it are a word for a password
        "ZSYC2DynQV1+d338cc13/YspkCk5+/8r4LFjwc55CDe/6KwMAT7C9N3jrg3cUpHz",  # a slash, and before it little to see
    ],
)
def test_all_of_a_key_goes_whatever_its_letters_say(key):
    shown = Redactor().text(f"| +- EQUALS_MATCH: L['self'].x == {key!r}  # if x:", "log")
    assert not any(key[at : at + 11] in shown for at in range(len(key) - 10))


@pytest.mark.parametrize("place", MADE_UP_PLACES)
def test_a_password_that_somebody_made_up_is_known_by_its_place(place):
    draw = random.Random(13)
    drawn = [made_up_password(draw) for _ in range(50)]
    kept = [secret for secret in drawn if any(secret in shown for shown in redacted(place.replace("PW", secret), f"got {secret} again"))]
    assert len(kept) <= 1, kept


@pytest.mark.parametrize(
    ("given", "secret"),
    [
        (r"aes_key = b'\xce\xfb\xdbZ\xea1\xe2c\xf8\xb9Q\x8cjWU8'", "xdbZ"),
        (r"pw = '\u0057\u0065\u0035\u0071\u0051\u0071'", "u0071"),
        ("key = bytes([15, 150, 57, 74, 248, 227, 112, 7, 230, 97, 167, 228, 241, 61, 174, 192])", "150, 57"),
        ("seed phrase: ginger quiz cactus orbit lemon velvet ridge tumble pistol flame anchor wagon", "cactus"),
        ("ssh host key 3f:a9:0c:d1:77:be:52:e8:1a:44:9d:f0:6b:c3:25:98 of the box", "a9:0c:d1"),
        ("modulus 00-c4-9b-2e-71-d8-5f-a3-16-ee-4d-b7-82-39-f5-0a end", "c4-9b-2e"),
        ("CODECOV_TOKEN: f797cd65-6412-4585-9c02-400513ba2c7f", "f797cd65"),
        ("https://conda.kite.example.com/t/ki-6ee51d80-5a9e-718d-c7c6-1278ae6adc74/label/x", "6ee51d80"),
    ],
)
def test_a_key_in_another_way_of_writing_is_taken_out(given, secret):
    (shown,) = redacted(given)
    assert secret not in shown and MASK in shown


@pytest.mark.parametrize(
    "text",
    [
        "run -p 8080 x -p tests/x.py -a 0.5 -k test_a1_B2 -u http://127.0.0.1:8080/x -W error::X -p no:cacheprovider -p2.15.0+cu128",
        "token is None, the password is None, password = getpass(), secret is not set, no api key given (see docs/Auth2.md)",
        "the access token is torch.float8_e4m3fn and the api key is self.keys[0], private key L1_B2",
        "the password as in README.md#Login-2 says, credentials of Qwen2VLForConditionalGeneration",
        "sshpass -p $PASSWORD ssh h; sshpass -p <password> ssh h; Authorization: Bearer ${TOKEN_1}",
        "http://127.0.0.1:8080/x?y#z@w https://pytorch.org/a#b@c",
        "Performs forward pass through fused Conv1d, BatchNorm1d, and ReLU; pass to :meth:`nn.MaxUnpool2d` or pass Conv2dReLU",
        'auth=("anna", os.environ["PW"]) login("model_v2_final") bind(("localhost", 8080)) jwt.encode(x, key, "HS256") token=tokens2ids',
        'special_tokens = ["<extra_id_0>", "<|im_end|>"]; self.login("conv2d"); key = bytes([1, 2, 3]); magic = b"\\x89PNG\\r\\n\\x1a\\n"',
        "pw: sha256\ntoken: str\nkey: q_proj\nauth: basic\npassword: Optional[str]\ntoken = self.token2\n",
        "def f(hostname: str, port: int) -> str | None: return str(port)\nhostname = parsed.hostname\nUSER: list = []",
        "api_key: Annotated[\nx: Annotated[str]\nsubstituted_api_key = raw_api_key\ny = raw_api_key",
        "LiquidAI/LFM2-8B-A1B mistralai/GptOss-8x7B-v0.1 nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-BF16 ResNeXt50_32X4D_Weights",
        "echo x2y | grep b4c; bench <<< 'resnet50'; https://pytorch.org/t/resnet50-v2-large/x",
    ],
)
def test_what_only_stands_where_a_password_may_stays(text):
    assert redacted(text) == [text]


def test_two_secrets_stay_two_and_one_stays_one():
    shown = redacted("password='aB3dE5gH7z'", "api_key='Zx81kd02mmQ4'", "L['x'] == 'Zx81kd02mmQ4'", "password='aB3dE5gH7z'", "password='x'")
    assert shown[0] == shown[3] == f"password='{MASK}'"
    assert shown[1:3] == [f"api_key='{MASK}2'", f"L['x'] == '{MASK}2'"]
