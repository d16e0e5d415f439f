"""Programs of Windows Server Core, and subcommands of the simulated ones, that are not simulated.
They fail with an error that differs from the one for a name that Windows does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from transom.userland.process import Command, Process

NOT_SUPPORTED: Final = 50  # ERROR_NOT_SUPPORTED


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PROGRAMS: Final = _words(
    "at auditpol bcdboot bcdedit bitsadmin bootcfg certreq change cipher cmdkey cmstp compact "
    "convert cscript defrag diantz diskperf diskraid djoin dnscmd driverquery esentutl expand "
    "extrac32 finger fltmc format ftp gpresult gpupdate iscsicli klist ksetup ktmutil lodctr "
    "ldifde logman logoff lpq lpr makecab manage-bde mmc mode mofcomp msg msiexec "
    "msinfo32 mstsc nbtstat netcfg netdom notepad ntdsutil "
    "odbcconf openfiles pathping pcalua perfmon pktmon pnputil powercfg print proxycfg qappsrv "
    "qprocess rasdial recover refsutil regedit regedt32 regini regsvr32 relog replace reset "
    "rpcping rundll32 sconfig secedit setspn sfc slmgr sxstrace sysprep taskmgr tpmtool "
    "tracerpt tscon tsdiscon tskill unlodctr usoclient verifier vfpctrl vssadmin waitfor "
    "wbadmin wecutil winrm winrs wscript wuauclt wusa xwizard"
)


_SUBCOMMANDS: Final = {
    "dism": _words(
        "/get-packages /get-packageinfo /add-package /remove-package /get-drivers /add-driver "
        "/remove-driver /get-driverinfo /export-driver /get-intl /set-syslocale /get-capabilities "
        "/add-capability /remove-capability /get-capabilityinfo /get-currentedition "
        "/get-targeteditions /set-edition /mount-image /unmount-image /commit-image "
        "/get-mountedimageinfo /get-imageinfo /apply-image /capture-image /append-image "
        "/export-image /cleanup-mountpoints /get-provisionedappxpackages /get-reservedstoragestate"
    ),
    "fsutil": _words(
        "behavior clfs objectid quota repair resource sparse storagereserve tiering transaction "
        "usn wim fsinfo:drivetype fsinfo:sectorinfo fsinfo:statistics fsinfo:refsinfo "
        "file:findbysid file:layout file:optimizemetadata file:queryallocranges file:queryea "
        "file:queryextents file:queryfileid file:queryfilenamebyid file:queryoptimizemetadata "
        "file:queryvaliddata file:seteof file:setshortname file:setvaliddata file:setzerodata "
        "volume:allocationreport volume:filelayout volume:findshrinkblocker volume:list "
        "volume:querycluster volume:querylabel volume:thinprovision"
    ),
    "net": _words("computer continue file group pause print session"),
    "sc": _words(
        "boot failureflag getcallbacks lock managedaccount preferrednode privs qfailureflag "
        "qmanagedaccount qpreferrednode qprivs qprotection qrunlevel qsidtype qtriggerinfo "
        "querylock quserservice sdset showsid sidtype triggerinfo"
    ),
    "wevtutil": _words(
        "al archive-log ep enum-publishers epl export-log gp get-publisher im install-manifest sl "
        "set-log um uninstall-manifest"
    ),
    "icacls": _words("/findsid /verify /substitute /setintegritylevel"),
}

_NETSH: Final = {
    "branchcache": "show set exportkey flush importkey reset",
    "bridge": "show set install uninstall",
    "dhcpclient": "list trace",
    "dnsclient": "add delete dump set show",
    "http": "add delete flush show",
    "ipsec": "dynamic static dump",
    "lan": "add connect delete disconnect export reconnect set show",
    "namespace": "dump show",
    "netio": "add delete dump show",
    "ras": "aaaa add delete diagnostics dump ip ipv6 set show",
    "rpc": "add delete dump filter reset show",
    "trace": "convert correlate diagnose dump export merge postreset show start stop",
    "wfp": "capture dump set show",
    "winhttp": "dump import reset set show",
    "winsock": "audit dump remove reset set show",
}
_NETSH_INTERFACE: Final = {
    "6to4": "dump interface isatap relay routing set show",
    "httpstunnel": "add delete dump reset set show",
    "isatap": "dump set show",
    "teredo": "dump set show",
    "tcp": "add delete dump reset set show",
    "udp": "add delete dump reset set show",
    "ipv4": "add delete dump install reset set show uninstall",
    "ipv6": "6to4 add delete dump isatap reset set show",
}
_NETSH_OBJECTS: Final = _words(
    "compartments defaults dnsservers dynamicport dynamicportrange excludedportrange "
    "destinationcache dynamicports global icmpstats interfaces ipnettomedia ipstats "
    "joins neighbors offload potentialrouters prefixpolicies subinterfaces tcpconnections "
    "tcpstats udpconnections udpstats winsservers heuristics supplemental security rscstats "
    "multicastforwarding siteprefixes tunnels winsserver"
)
_INTERFACE: Final = ("int", "interface")


def unsupported_message(what: str) -> str:
    return f"'{what}' is not supported on simulated machines."


def is_unsupported_netsh(arguments: Sequence[str]) -> bool:
    """Whether real netsh has this command. Ask only about commands that are not performed."""
    words = [word.lower() for word in arguments]
    if words[:1] and words[0] in _INTERFACE and len(words) > 1:
        family = "ipv4" if words[1] == "ip" else words[1]
        verbs = _NETSH_INTERFACE.get(family, "").split()
        if words[2:3] == [] or words[2] not in verbs:
            return False
        return family not in ("ipv4", "ipv6") or words[3:4] == [] or words[3] in _NETSH_OBJECTS
    return len(words) > 1 and words[1] in _NETSH.get(words[0], "").split()


def find_unsupported_program(name: str) -> Command | None:
    """`name` is without extension and in lower case."""
    if name not in _PROGRAMS:
        return None

    def run(process: Process) -> int:
        process.complain(unsupported_message(name))
        return NOT_SUPPORTED

    return run


def unsupported_subcommand(tool: str, arguments: Sequence[str]) -> str:
    """The subcommand that Windows' tool has and the simulated one has not; empty if there is
    none.
    """
    known = _SUBCOMMANDS.get(tool)
    if known is None:
        return ""
    words = [word.lower() for word in arguments]
    if tool == "dism":  # a dash may replace the slash
        words = ["/" + word[1:] if word.startswith("-") else word for word in words]
    if tool in ("dism", "icacls"):
        found = next((word for word in words if word.partition(":")[0] in known), "")
        return f"{tool} {found.partition(':')[0]}" if found else ""
    words = [word for word in words if not word.startswith("\\\\")]
    if words and words[0] in known:
        return f"{tool} {words[0]}"
    if len(words) > 1 and f"{words[0]}:{words[1]}" in known:
        return f"{tool} {words[0]} {words[1]}"
    return ""
