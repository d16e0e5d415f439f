"""PowerShell: output, duration and exit codes of scripts from manifests and the documentation."""

from __future__ import annotations

import pytest

SCRIPTS = [
    (
        "function f([Parameter(Mandatory = $true)] [string] $a, [object[]] $b = @(), [bool] "
        "$c = $false) "
        '{ "$a $($b.Count) $c" }; f x 1,2 $true',
        "x 2 True\r\n",
    ),
    ("Write-Host hello world", "hello world\r\n"),
    ("Write-Output 'a'; Write-Output \"b\"", "a\r\nb\r\n"),
    ("'just a string'", "just a string\r\n"),
    ('$x = 5; "x is $x and $($x + 1)"', "x is 5 and 6\r\n"),
    ("'single $x'", "single $x\r\n"),
    ("1 + 2 * 3; 7 / 2; 10 % 4; 6 / 2", "7\r\n3.5\r\n2\r\n3\r\n"),
    ('$env:COMPUTERNAME; "on $env:computername"', "BOX\r\non BOX\r\n"),
    ("$env:FOO = 'bar'; cmd /c 'echo %FOO%'", "bar\r\n"),
    ("foreach ($i in 1..3) { $i }", "1\r\n2\r\n3\r\n"),
    ("for ($i = 0; $i -lt 3; $i++) { Write-Host $i }", "0\r\n1\r\n2\r\n"),
    (
        "$i = 0; while ($true) { $i++; if ($i -eq 2) { continue }; if ($i -gt 3) { break }; $i }",
        "1\r\n3\r\n",
    ),
    ("$i = 3; do { $i; $i-- } while ($i -gt 1)", "3\r\n2\r\n"),
    ("if (1 -gt 2) { 'a' } elseif ('abc' -like 'a*') { 'b' } else { 'c' }", "b\r\n"),
    ("1..5 | Where-Object { $_ -gt 3 } | ForEach-Object { $_ * 10 }", "40\r\n50\r\n"),
    ("1..5 | % { $_ } | Select-Object -First 2", "1\r\n2\r\n"),
    ("3,1,2 | Sort-Object -Descending", "3\r\n2\r\n1\r\n"),
    ("(1..4 | Measure-Object -Sum).Sum", "10\r\n"),
    ("$a = @(1,2,3); $a.Count; $a[0]; $a[-1]; $a += 4; $a.Length", "3\r\n1\r\n3\r\n4\r\n"),
    ("$h = @{a=1; b='two'}; $h.a; $h['b']; $h.Count", "1\r\ntwo\r\n2\r\n"),
    (
        "'Hello'.ToUpper(); 'a,b,c'.Split(',')[1]; 'abc'.Length; 'x'.PadLeft(3,'0')",
        "HELLO\r\nb\r\n3\r\n00x\r\n",
    ),
    ("'a-b' -replace '-','+'; 'a b' -split ' '; 1,2 -join '-'", "a+b\r\na\r\nb\r\n1-2\r\n"),
    ("'{0:D3} {1:N1}' -f 7, 3.14159", "007 3.1\r\n"),
    ("if ('abc123' -match '(\\d+)') { $matches[1] }", "123\r\n"),
    ("function Add($a, $b) { return $a + $b }; Add 2 3; Add -b 1 -a 9", "5\r\n10\r\n"),
    ("try { throw 'boom' } catch { \"caught $_\" } finally { 'done' }", "caught boom\r\ndone\r\n"),
    ("try { Get-Content C:\\nope -ErrorAction Stop } catch { 'no file' }", "no file\r\n"),
    ("switch ('b') { 'a' { 1 } 'b' { 2 } default { 3 } }", "2\r\n"),
    ("Get-Content C:\\hello.txt", "Hello from a file\r\n"),
    (
        "Set-Content C:\\x.txt 'one'; Add-Content C:\\x.txt 'two'; Get-Content C:\\x.txt; "
        "Test-Path "
        "C:\\x.txt; Remove-Item C:\\x.txt; Test-Path C:\\x.txt",
        "one\r\ntwo\r\nTrue\r\nFalse\r\n",
    ),
    (
        "New-Item -ItemType Directory -Path C:\\d | Out-Null; (Get-ChildItem C:\\).Name",
        "d\r\nUsers\r\nWindows\r\nhello.txt\r\n",
    ),
    (
        "'out' | Out-File C:\\o.txt; type C:\\o.txt; 'more' >> C:\\o.txt; (gc C:\\o.txt).Count",
        "out\r\n2\r\n",
    ),
    (
        "@{a=1} | ConvertTo-Json -Compress; ('{\"x\":[1,2]}' | ConvertFrom-Json).x[1]",
        '{"a":1}\r\n2\r\n',
    ),
    (
        "[Environment]::MachineName; [Math]::Round(2.567, 1); [string]::Join('-', @(1,2))",
        "BOX\r\n2.6\r\n1-2\r\n",
    ),
    ("[int]'42' + 1; [string]5 + '5'; [bool]0", "43\r\n55\r\nFalse\r\n"),
    ("Get-Date -Format 'yyyy-MM-dd HH:mm:ss'", "2020-01-02 03:04:05\r\n"),
    ("(Get-Date).Year; (Get-Date).AddDays(1).ToString('yyyyMMdd')", "2020\r\n20200103\r\n"),
    (
        "$null -eq $nope; -not $true; !$false; $true -and $false",
        "True\r\nFalse\r\nTrue\r\nFalse\r\n",
    ),
    ("& { param($n) $n * 2 } 4; & 'hostname'", "8\r\nbox\r\n"),
    ('"tab`tquote`"dollar`$"', 'tab\tquote"dollar$\r\n'),
    ("# comment\n<# block #> 'after'", "after\r\n"),
    ("1KB; 2MB; 0xFF", "1024\r\n2097152\r\n255\r\n"),
    ("(Resolve-DnsName kubernetes).IPAddress", "10.96.0.1\r\n"),
    ("$PSVersionTable.PSVersion.ToString()", "5.1.17763.1697\r\n"),
    ("$PSVersionTable.BuildVersion.ToString()", "10.0.17763.1697\r\n"),
    ("[Environment]::OSVersion.Version.ToString()", "10.0.17763.0\r\n"),
    ("Get-Date -Year 2020 -Month 2 -Day 29 -Hour 5 -Format 'yyyy-MM-dd HH'", "2020-02-29 05\r\n"),
    ("Write-Warning a; Write-Warning b -WarningAction SilentlyContinue", "WARNING: a\r\n"),
    (
        "$WarningPreference = 'Ignore'; Write-Warning a; Write-Warning b -WA Continue",
        "WARNING: b\r\n",
    ),
    ("Write-Warning a -WA 0 -WV w; Write-Warning b -WA 0 -WV +w; $w.Count", "2\r\n"),
    ("try { Write-Warning a -WarningAction Stop } catch { 'stopped' }", "stopped\r\n"),
    ("'a', 'b' | Write-Warning", "WARNING: a\r\nWARNING: b\r\n"),
    (
        '1..10 | Group-Object { $_ % 2 } | ForEach-Object { "$($_.Name):$($_.Count)" }',
        "1:5\r\n0:5\r\n",
    ),
    (
        "Set-Content C:\\r.txt x; Get-Item C:\\r.txt | Rename-Item -NewName { 'z_' + $_.Name } -PassThru |"
        " ForEach-Object Name; Move-Item C:\\z_r.txt C:\\m.txt -PassThru | ForEach-Object FullName;"
        " Remove-Item C:\\m.txt",
        "z_r.txt\r\nC:\\m.txt\r\n",
    ),
    ("Start-Job { 1 + 1 } | Wait-Job | Receive-Job", "2\r\n"),
    ("@'\nhere $x\n'@", "here $x\r\n"),
    ('$a, $b = 1, 2; "$a $b"', "1 2\r\n"),
    ("[pscustomobject]@{Name='x'; Value=1} | Select-Object -ExpandProperty Name", "x\r\n"),
    ("Write-Host -NoNewline a; Write-Host b", "ab\r\n"),
    ("cmd /c exit 3; $LASTEXITCODE", "3\r\n"),
    ("(Get-Item C:\\hello.txt).Length; 'abc'.Contains('b')", "19\r\nTrue\r\n"),
]


@pytest.mark.parametrize(
    ("script", "expected"), SCRIPTS, ids=[script[:40] for script, _ in SCRIPTS]
)
def test_output(windows, script: str, expected: str) -> None:
    result = windows.powershell(script)
    assert (result.out, result.err) == (expected, "")


@pytest.mark.parametrize(
    ("script", "code", "first"),
    [
        ("exit 7", 7, ""),
        ("exit -1", 0xFFFFFFFF, ""),
        ("throw 'boom'", 1, "boom"),
        (
            "nope",
            1,
            (
                "nope : The term 'nope' is not recognized as the name of a cmdlet, function, "
                "script file, or operable program. Check the spelling of the name, or if a path "
                "was included, verify that the path is correct and try again."
            ),
        ),
        ("Write-Error 'bad'", 1, "Write-Error 'bad' : bad"),
        (
            "Get-Content C:\\nope",
            1,
            "Get-Content : Cannot find path 'C:\\nope' because it does not exist.",
        ),
        ("Get-Content C:\\nope -ErrorAction SilentlyContinue; 'x'", 0, ""),
        ("cmd /c exit 5", 1, ""),
        ("if (", 1, "At line:1 char:4"),
        ("1/0", 1, "Attempted to divide by zero."),
        (
            "Invoke-WebRequest http://nowhere/",
            1,
            "Invoke-WebRequest : The remote name could not be resolved: 'nowhere'",
        ),
        (
            "$ErrorActionPreference = 'Stop'; Get-Item C:\\nope; 'not reached'",
            1,
            "Get-Item : Cannot find path 'C:\\nope' because it does not exist.",
        ),
    ],
)
def test_ends(windows, script: str, code: int, first: str) -> None:
    result = windows.powershell(script)
    assert (result.code, result.err.split("\r\n")[0]) == (code, first)


def test_sleeps(windows) -> None:
    assert (
        windows.powershell(
            "Start-Sleep -Seconds 3; Start-Sleep 2; Start-Sleep -Milliseconds 500"
        ).seconds
        == 5.5
    )
    endless = windows.powershell("while ($true) { Write-Host tick; Start-Sleep 10 }", limit=35)
    assert (endless.out, endless.code) == ("tick\r\n" * 4, None)


def test_ways_to_call(windows) -> None:
    windows.files.write(
        "C:\\run.ps1", b"param($Name = 'nobody')\r\nWrite-Host \"hi $Name\"\r\nexit 4\r\n"
    )
    assert windows.run("powershell", "-File", "C:\\run.ps1", "-Name", "you")[::2] == (
        "hi you\r\n",
        4,
    )
    assert (
        windows.run("powershell.exe", "-NoProfile", "-ExecutionPolicy", "Bypass", "-c", "'x'").out
        == "x\r\n"
    )
    assert windows.run("powershell", "Write-Host", "bare").out == "bare\r\n"
    assert windows.cmd('powershell -Command "Write-Host from cmd"').out == "from cmd\r\n"
    console = windows.run(
        "powershell", stdin=b"$x = 1\r\nif ($x) {\r\n'y'\r\n}\r\nexit 2\r\n", tty=True
    )
    assert console.code == 2
    assert console.out.endswith("PS C:\\> PS C:\\> >> >> y\r\nPS C:\\> ")


def test_busy_jobs_cost_processor_time(windows) -> None:
    """As the end-to-end test for CPU limits has it."""
    script = (
        "foreach ($loopnumber in 1..8) "
        "{ Start-Job -ScriptBlock { $result = 1; foreach($mm in "
        "1..2147483647){$res1=$mm*$mm*$mm} } } ; "
        "get-job | wait-job"
    )
    result = windows.powershell(script, limit=4)
    assert result.code is None
    assert windows.usage.burnt > 8 * 3


def test_memory_is_asked_for(windows) -> None:
    result = windows.powershell(
        "$a = New-Object byte[] 300MB; $b = [byte[]]::new(300MB); 'ok'; $c = New-Object "
        "byte[] 600MB; 'no'"
    )
    assert windows.usage.held == 600 << 20
    assert result.out == "ok\r\nno\r\n"
    assert "System.OutOfMemoryException" in result.err


WEB_SERVER = (
    "<#code used from https://gist.github.com/19WAS85/5424431#> ; $listener = New-Object "
    "System.Net.HttpListener ; "
    "$listener.Prefixes.Add('http://*:80/') ; $listener.Start() ; $callerCounts = @{} ; "
    "Write-Host('Listening at http://*:80/') ; "
    "while ($listener.IsListening) { ;$context = $listener.GetContext() ;$requestUrl = "
    "$context.Request.Url ;"
    "$clientIP = $context.Request.RemoteEndPoint.Address ;$response = $context.Response "
    ";Write-Host '' ;"
    "Write-Host('> {0}' -f $requestUrl) ;  ;$count = 1 ;$k=$callerCounts.Get_Item($clientIP) ;"
    "if ($k -ne $null) { $count += $k } ;$callerCounts.Set_Item($clientIP, $count) ;"
    "$ip=(Get-NetAdapter | Get-NetIpAddress); $header='<html><body><H1>Windows Container Web "
    "Server</H1>' ;"
    "$callerCountsString='' ;$callerCounts.Keys | % "
    "{ $callerCountsString+='<p>IP {0} callerCount {1} ' -f "
    "$ip[1].IPAddress,$callerCounts.Item($_) } ;"
    "$footer='</body></html>' ;$content='{0}{1}{2}' -f $header,$callerCountsString,$footer "
    ";Write-Output $content ;"
    "$buffer = [System.Text.Encoding]::UTF8.GetBytes($content) ;$response.ContentLength64 = "
    "$buffer.Length ;"
    "$response.OutputStream.Write($buffer, 0, $buffer.Length) ;$response.Close() "
    ";$responseStatus = $response.StatusCode ;"
    "Write-Host('< {0}' -f $responseStatus)  } ; "
)


async def test_web_server_of_the_documentation(windows) -> None:
    context = windows.start("powershell.exe", "-command", WEB_SERVER)
    await windows.clock.run_for(0.1)
    assert context.output == b"Listening at http://*:80/\r\n"
    for count in (1, 2):
        status, headers, body = await windows.http(80)
        assert (status, headers["server"]) == (200, "Microsoft-HTTPAPI/2.0")
        assert body == (
            "<html><body><H1>Windows Container Web Server</H1><p>IP 10.244.1.2 "
            f"callerCount {count} </body></html>"
        )
    assert b"> http://box/\r\n" in context.output
    assert b"< 200\r\n" in context.output
    context.signal("CTRL_SHUTDOWN_EVENT")
    await windows.clock.run_for(0.1)
    assert context.code == 0xC000013A


async def test_a_listener_does_what_its_script_says(windows) -> None:
    script = (
        "$l = [System.Net.HttpListener]::new(); $l.Prefixes.Add('http://+:8080/'); $l.Start(); "
        "while ($l.IsListening) { $c = $l.GetContext(); $r = $c.Response; "
        "if ($c.Request.Url.LocalPath -eq '/end') { $r.Close(); $l.Stop() } else { "
        "$r.StatusCode = 418; "
        "$r.ContentType = 'text/x'; $b = [Text.Encoding]::UTF8.GetBytes($c.Request.HttpMethod); "
        "$r.OutputStream.Write($b, 0, 2); $r.OutputStream.Close() } }; 'over'"
    )

    context = windows.start("powershell.exe", "-command", script)
    await windows.clock.run_for(0.1)
    status, headers, body = await windows.http(8080, "/tea")
    assert (status, headers["content-type"], body) == (418, "text/x", "GE")
    assert (await windows.http(8080, "/end"))[0] == 200
    await windows.clock.run_for(0.1)
    assert (context.code, context.output) == (0, b"over\r\n")


TYPED = [
    ("[int[]]$x = 1,2,'3'; $x.GetType().FullName; $x[2] + 1", "System.Int32[]\r\n4\r\n"),
    ("[int[]]$x = 1,2; $x += '3'; $x.GetType().Name; $x[2] + 1", "Int32[]\r\n4\r\n"),
    ("[int]$x = 5; $x = '7'; $x + 1", "8\r\n"),
    (
        "[int]$x = 5; try { $x = 'abc' } catch { $_.CategoryInfo.Category; $x }",
        "MetadataError\r\n5\r\n",
    ),
    (
        "function f { [string]$y = 1; $y = 2; $y.GetType().Name }; f; $y = 3; $y + 1",
        "String\r\n4\r\n",
    ),
    (
        "$b = New-Object byte[] 2; try { $b[1] = 256 } catch { $_.Exception.Message }; $b",
        'Array assignment to [1] failed: Cannot convert value "256" to type "System.Byte". Error: '
        '"Value was either too large or too small for an unsigned byte."\r\n0\r\n0\r\n',
    ),
    (
        "$a = 1,2; try { $a.Add(3) } catch { $_.Exception.Message }; $a -is [array]",
        'Exception calling "Add" with "1" argument(s): "Collection was of a fixed size."\r\nTrue\r\n',
    ),
    (
        "$l = [System.Collections.Generic.List[int]]::new(); $l.Add(3); $l.Add('1'); $l.Sort(); "
        '"$l"; $l.GetType().Name; $l -is [System.Collections.Generic.List[int]]; $l.ToArray().GetType().Name',
        "1 3\r\nList`1\r\nTrue\r\nInt32[]\r\n",
    ),
    (
        "$l = New-Object System.Collections.Generic.List[string]; $l.AddRange([string[]]('x','yy')); "
        "$l.Find({ param($s) $s.Length -eq 2 }); $l.RemoveAll({ $args[0] -eq 'x' }); $l.Count",
        "yy\r\n1\r\n1\r\n",
    ),
    (
        "$l = [System.Collections.ArrayList]@(1); $l.Add(2); $l.Remove(1); $l; $l.GetType().Name",
        "1\r\n2\r\nArrayList\r\n",
    ),
    (
        "$s = [System.Collections.Generic.Stack[int]]::new(); $s.Push(1); $s.Push(2); $s; $s.Pop()",
        "2\r\n1\r\n2\r\n",
    ),
    (
        "$s = [System.Collections.Generic.HashSet[string]]::new(); $s.Add('a'); $s.Add('a'); $s",
        "True\r\nFalse\r\na\r\n",
    ),
    (
        "$d = [System.Collections.Generic.Dictionary[string,int]]::new(); $d.Add('a', 1); "
        "try { $d.Add('a', 2) } catch { 'twice' }; $d.ContainsKey('A'); $d | ft",
        "twice\r\nFalse\r\n\r\nKey Value\r\n--- -----\r\na       1\r\n\r\n\r\n",
    ),
    (
        "$o = [ordered]@{b = 1; a = 2}; $o[0]; $o['a']; $o.Insert(0, 'z', 9); $o.Keys; "
        "$o.GetType().Name",
        "1\r\n2\r\nz\r\nb\r\na\r\nOrderedDictionary\r\n",
    ),
    ("@{a = 1} | fl", "\r\n\r\nName  : a\r\nValue : 1\r\n\r\n\r\n\r\n"),
    (
        "(1,2).GetType()",
        "\r\nIsPublic IsSerial Name                                     BaseType\r\n"
        "-------- -------- ----                                     --------\r\n"
        "True     True     Object[]                                 System.Array\r\n\r\n\r\n",
    ),
    (
        "@{a=@{b=@{c=@{d=1}}}} | ConvertTo-Json -Compress",
        '{"a":{"b":{"c":"System.Collections.Hashtable"}}}\r\n',
    ),
    (
        "try { [IO.File]::ReadAllText('C:\\none') } catch [System.IO.FileNotFoundException] { 'none' }",
        "none\r\n",
    ),
]


@pytest.mark.parametrize(("script", "expected"), TYPED, ids=[script for script, _ in TYPED])
def test_types_of_variables_and_collections(windows, script: str, expected: str) -> None:
    result = windows.powershell(script)
    assert (result.out, result.err) == (expected, "")


def test_the_variable_null_stays_null(windows) -> None:
    assert (
        windows.powershell("$null = 5; $null -eq (1, 2); '[' + $null + ']'").out
        == "False\r\n[]\r\n"
    )


@pytest.mark.parametrize(
    ("script", "first", "identity"),
    [
        (
            "if (1 -eq 1 { 'x' }",
            "Missing closing ')' after expression in 'if' statement.",
            "MissingEndParenthesisAfterStatement",
        ),
        (
            '"open',
            'The string is missing the terminator: ".',
            "TerminatorExpectedAtEndOfString",
        ),
        (r"& C:\nope.exe", r"& : The term 'C:\nope.exe' is not recognized", "CommandNotFound"),
    ],
)
def test_faults_of_scripts(windows, script: str, first: str, identity: str) -> None:
    result = windows.powershell(script)
    assert first in result.out + result.err
    assert f"FullyQualifiedErrorId : {identity}" in result.out + result.err


def test_tables_in_groups_and_columns(windows) -> None:
    script = (
        "'a1','b1','b2' | % { [pscustomobject]@{N = $_; K = $_[0]} } | ft N -GroupBy K; "
        "1..3 | Format-Wide -Column 3"
    )
    lines = [line for line in windows.powershell(script).out.split("\r\n") if line]
    assert lines[:4] == ["   K: a", "N", "-", "a1"]
    assert lines[4:9] == ["   K: b", "N", "-", "b1", "b2"]
    assert lines[9].split() == ["1", "2", "3"]
