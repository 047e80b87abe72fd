"""200 strings that a stranger could put into a log: markup of every renderer's language, characters that deceive, and long ones."""

_MARKUP = """<script>alert(1)</script>|</script><script>alert(1)//|</style><script>alert(1)</script>|</title><script>1</script>
</textarea><b>
<img src=x onerror=alert(1)>|<svg onload=alert(1)>|<svg><script>1</script></svg>|<body onload=1>|<iframe src=//evil.example>
<a href=//e.example>x</a>
<a href="javascript:alert(1)">x</a>|<base href=//evil.example>|<meta http-equiv=refresh content=0>|<link rel=stylesheet href=//e>
<form action=//e>
<input autofocus onfocus=1>|<details open ontoggle=1>|<video><source onerror=1>|<math><mi xlink:href=javascript:1>
<object data=//e>|<embed src=//e>
<b style="position:fixed">|<style>*{display:none}</style>|<template><script>1</script></template>
<noscript><p title="</noscript><img>">|<plaintext>
" onmouseover="alert(1)|' onfocus='alert(1)|"><img src=x>|'><img src=x>|`onload=1`|x"autofocus onfocus="1|=//e.example
/><script>1</script>|--><b>|]]><b>
<!--|<!DOCTYPE html>|<?xml version="1.0"?>|<![CDATA[<b>]]>|<!ENTITY x SYSTEM "file:///etc/passwd">|&x;|&lt;script&gt;
&#60;script&#62;|&#x3c;b&#x3e;|&amp;lt;
javascript:alert(1)|JaVaScRiPt:1|java\tscript:1|data:text/html,<script>1</script>|vbscript:1|file:///etc/passwd|//evil.example
https://evil.example
url(//evil.example)|expression(alert(1))|@import '//e';|}*{display:none}|/**/|:root{--dd-ink:#fff}|\\3c script
;background:url(//e)|!important
<g transform="scale(9)">|<use href="#x"/>|<foreignObject><b>x</b></foreignObject>|<animate onbegin=1>|<set attributeName=href>
<text x="0">|</svg>|</g></g>
{{1234*4321}}|{%1234*4321%}|${1234*4321}|#{1234*4321}|<%=1234*4321%>|{{config}}|{{''.__class__.__mro__}}
{% include "report.html" %}|{#|#}|{{|{%|%s%n|{0}|{x!r}
@torvalds|@pytorch/team|#1|GH-7|pytorch/pytorch#1|a@b.example|user@host:~$|fixes #12|closes #3|cc @x|!1|commit deadbeef
www.evil.example|mailto:a@b.c
[x](javascript:alert(1))|![x](//evil.example/x.png)|[x][y]|[y]: //evil.example|<https://evil.example>|**b**|__b__|~~s~~|`c`|```
~~~|$x$|:bomb:
# heading|- list|> quote|1. one|\\||| a | b ||---|***|===|    code|</details>|<details><summary>x|<br>|\\[x\\](y)|[x]: <y>|^[note]
\\`|--- 8< ---
[red]x[/red]|[link=//e]x[/link]|[/]|[bold|\\[bold]|[@click=app.quit]x[/]|[blink]|[/red]|:skull:|[on red]"""
_CONTROLS = [
    *(f"a{chr(code)}b" for code in (0, 1, 7, 8, 9, 10, 11, 12, 13, 26, 27, 127, 133, 155, 157, 173)),
    *(
        f"a{char}b"
        for char in "\u200b\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2028\u2029\u2066\u2067\u2069\ufeff\ufffe\uffff\u061c"
    ),
    *("\ud800", "\udfff", "\ud83d", "a\udc00\ud800b", "\U000e0041\U000e007f", "\U0001f468\u200d\U0001f469", "\U0010ffff", "e\u0301" * 50),
    *(
        "\x1b[31mred",
        "\x1b]0;title\x07",
        "\x1b]8;;//e\x07x\x1b]8;;\x07",
        "\x1b[2J\x1b[H",
        "\x1bPq\x1b\\",
        "\x9b31m",
        "\x1b[6n",
        "\x1bc",
        "\x1b]52;c;x\x07",
    ),
    *(
        "../../etc/passwd",
        "/dev/stdin",
        "C:\\x\\..",
        "a/../../b",
        "%2e%2e%2f",
        "~/x",
        "-rf",
        "$(id)",
        "`id`",
        "; id",
        "| id",
        "\\\\host\\x",
        "CON",
        ".",
        "",
    ),
    *(
        "A" * 20_000,
        "<" * 5_000,
        "'" * 5_000,
        "\u202e" * 5_000,
        "`" * 3_000,
        "|" * 3_000,
        "[" * 3_000,
        "W " * 5_000,
        "\n" * 3_000,
        "f'{" * 2_000,
    ),
    *('{"a":1}', "null", "NaN", "1e999", "\\u0000", "\\", '"', "'", "'''", '"""'),
]
STRINGS = list(dict.fromkeys([one for line in _MARKUP.split("\n") for one in line.split("|") if one] + _CONTROLS))
