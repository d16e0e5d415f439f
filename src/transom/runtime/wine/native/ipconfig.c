/* ipconfig: prints what Windows prints, including the name servers, which Wine's ipconfig omits.
 *
 * ipconfig [/all]          addresses of the container's adapters; other options are ignored
 * ipconfig /flushdns       does nothing: there is no cache
 */
#include <winsock2.h>
#include <ws2tcpip.h>
#include <iphlpapi.h>
#include <windows.h>

#define ADDRESS_CHARACTERS 96
#define TEXT_BYTES 1024
#define ROOM (64 * 1024)

/* The parts of the C library that every Windows version has. */
int _snprintf(char *, size_t, const char *, ...);
int __getmainargs(int *, char ***, char ***, int, int *);

static BOOL all;

static void print_line(const char *label, const char *value)
{
    static char text[TEXT_BYTES];
    DWORD written;

    text[sizeof text - 1] = 0;
    _snprintf(text, sizeof text - 1, "%s%s\r\n", label, value);
    WriteFile(GetStdHandle(STD_OUTPUT_HANDLE), text, lstrlenA(text), &written, NULL);
}

static char *shown(const SOCKET_ADDRESS *address, const char *mark)
{
    static char text[ADDRESS_CHARACTERS];
    char plain[ADDRESS_CHARACTERS] = "", scope[16] = "";
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address->lpSockaddr;
    const struct sockaddr_in *four = (const struct sockaddr_in *)address->lpSockaddr;
    BOOL old = four->sin_family == AF_INET;

    inet_ntop(four->sin_family, old ? (const void *)&four->sin_addr : (const void *)&six->sin6_addr, plain, sizeof plain);
    if (!old && six->sin6_scope_id)
        _snprintf(scope, sizeof scope - 1, "%%%lu", (unsigned long)six->sin6_scope_id);
    text[sizeof text - 1] = 0;
    _snprintf(text, sizeof text - 1, "%s%s%s", plain, scope, mark);
    return text;
}

static void show_addresses(const IP_ADAPTER_UNICAST_ADDRESS *first)
{
    const char *mark = all ? "(Preferred) " : "";

    for (const IP_ADAPTER_UNICAST_ADDRESS *each = first; each; each = each->Next) {
        const BYTE *six = ((const struct sockaddr_in6 *)each->Address.lpSockaddr)->sin6_addr.s6_addr;
        if (each->Address.lpSockaddr->sa_family == AF_INET6)
            print_line(six[0] == 0xFE && (six[1] & 0xC0) == 0x80 ? "   Link-local IPv6 Address . . . . . : "
                                                          : "   IPv6 Address. . . . . . . . . . . : ",
                shown(&each->Address, mark));
    }
    for (const IP_ADAPTER_UNICAST_ADDRESS *each = first; each; each = each->Next)
        if (each->Address.lpSockaddr->sa_family == AF_INET) {
            char mask[ADDRESS_CHARACTERS];
            DWORD bits = each->OnLinkPrefixLength ? ~0U << (32 - each->OnLinkPrefixLength) : 0;
            print_line("   IPv4 Address. . . . . . . . . . . : ", shown(&each->Address, mark));
            _snprintf(mask, sizeof mask - 1, "%lu.%lu.%lu.%lu", bits >> 24, bits >> 16 & 255, bits >> 8 & 255, bits & 255);
            print_line("   Subnet Mask . . . . . . . . . . . : ", mask);
        }
}

static void show_adapter(const IP_ADAPTER_ADDRESSES *adapter)
{
    char text[TEXT_BYTES / 2], name[TEXT_BYTES / 4] = "", suffix[TEXT_BYTES / 4] = "";
    const char *label = "   Default Gateway . . . . . . . . . : ";
    BOOL any = FALSE;

    WideCharToMultiByte(CP_UTF8, 0, adapter->FriendlyName, -1, name, sizeof name, NULL, NULL);
    WideCharToMultiByte(CP_UTF8, 0, adapter->DnsSuffix, -1, suffix, sizeof suffix, NULL, NULL);
    _snprintf(text, sizeof text - 1, "\r\nEthernet adapter vEthernet (%s):\r\n", name);
    print_line(text, "");
    print_line("   Connection-specific DNS Suffix  . : ", suffix);
    if (all) {
        int at = 0;
        text[0] = 0;
        for (DWORD i = 0; i < adapter->PhysicalAddressLength; i++)
            at += _snprintf(text + at, sizeof text - 1 - at, i ? "-%02X" : "%02X", adapter->PhysicalAddress[i]);
        print_line("   Description . . . . . . . . . . . : ", "Hyper-V Virtual Ethernet Container Adapter");
        print_line("   Physical Address. . . . . . . . . : ", text);
        print_line("   DHCP Enabled. . . . . . . . . . . : ", adapter->Flags & IP_ADAPTER_DHCP_ENABLED ? "Yes" : "No");
        print_line("   Autoconfiguration Enabled . . . . : ", "Yes");
    }
    show_addresses(adapter->FirstUnicastAddress);
    text[0] = 0;
    for (const IP_ADAPTER_GATEWAY_ADDRESS_LH *each = adapter->FirstGatewayAddress; each; each = each->Next) {
        char *gateway = shown(&each->Address, "");
        if (any && !lstrcmpA(gateway, text))
            continue; /* Wine lists the same one twice */
        lstrcpyA(text, gateway);
        print_line(any ? "                                       " : label, gateway);
        any = TRUE;
    }
    if (!any)
        print_line(label, "");
    if (!all)
        return;
    label = "   DNS Servers . . . . . . . . . . . : ";
    for (const IP_ADAPTER_DNS_SERVER_ADDRESS *each = adapter->FirstDnsServerAddress; each; each = each->Next) {
        print_line(label, shown(&each->Address, ""));
        label = "                                       ";
    }
    print_line("   NetBIOS over Tcpip. . . . . . . . : ", "Disabled");
    if (suffix[0]) {
        print_line("   Connection-specific DNS Suffix Search List :", "");
        print_line("                                       ", suffix);
    }
}

void start(void)
{
    int count, mode = 0;
    char **words, **variables;
    WSADATA about;
    ULONG size = ROOM;
    static char name[256], suffix[256];

    __getmainargs(&count, &words, &variables, 0, &mode);
    WSAStartup(MAKEWORD(2, 2), &about);
    print_line("\r\nWindows IP Configuration\r\n", "");
    for (int i = 1; i < count; i++) {
        all |= !lstrcmpiA(words[i] + 1, "all");
        if (!lstrcmpiA(words[i] + 1, "flushdns")) {
            print_line("Successfully flushed the DNS Resolver Cache.", "");
            ExitProcess(0);
        }
    }
    IP_ADAPTER_ADDRESSES *found = HeapAlloc(GetProcessHeap(), HEAP_ZERO_MEMORY, size);
    if (GetAdaptersAddresses(AF_UNSPEC, GAA_FLAG_INCLUDE_GATEWAYS, NULL, found, &size))
        ExitProcess(1);
    const IP_ADAPTER_ADDRESSES *each = found;
    for (; each && !suffix[0]; each = each->Next)
        WideCharToMultiByte(CP_UTF8, 0, each->DnsSuffix, -1, suffix, sizeof suffix, NULL, NULL);
    if (all) {
        gethostname(name, sizeof name);
        print_line("   Host Name . . . . . . . . . . . . : ", name);
        print_line("   Primary Dns Suffix  . . . . . . . : ", "");
        print_line("   Node Type . . . . . . . . . . . . : ", "Hybrid");
        print_line("   IP Routing Enabled. . . . . . . . : ", "No");
        print_line("   WINS Proxy Enabled. . . . . . . . : ", "No");
        if (suffix[0])
            print_line("   DNS Suffix Search List. . . . . . : ", suffix);
    }
    for (each = found; each; each = each->Next)
        if (each->IfType != IF_TYPE_SOFTWARE_LOOPBACK)
            show_adapter(each);
    ExitProcess(0);
}
