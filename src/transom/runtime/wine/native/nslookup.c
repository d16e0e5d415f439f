/* nslookup: the part of Windows' nslookup.exe that looks up the addresses of a name.
 *
 * nslookup NAME|ADDRESS [SERVER]     -type=X, -querytype=X or -q=X with X one of A, AAAA, A+AAAA (default); other options
 *                                    are ignored. For an IPv4 address, its name is looked up.
 *
 * As on Windows, the pod's suffix is tried first, also with names that have a dot, and a name that ends with one is used
 * as it is; the exit code is 0 even when a name is not found. Not supported: interactive mode, other record types, TCP.
 */
#include <winsock2.h>
#include <ws2tcpip.h>
#include <iphlpapi.h>
#include <windows.h>

#define MESSAGE_BYTES 4096
#define NAME_BYTES 300
#define PATIENCE_MS 2000
#define TRIES 2
#define MOST_LINES 32
enum { A = 1, CNAME = 5, PTR = 12, AAAA = 28, NO_ANSWER = -1, NO_NAME = 3 };

/* The parts of the C library that every Windows version has. */
void *memcpy(void *, const void *, size_t);
int memcmp(const void *, const void *, size_t);
int strncmp(const char *, const char *, size_t);
char *strchr(const char *, int);
int _snprintf(char *, size_t, const char *, ...);
int __getmainargs(int *, char ***, char ***, int, int *);

static BYTE message[MESSAGE_BYTES];
static int length;
static struct sockaddr_storage server;
static int server_length;
static char found_name[NAME_BYTES], addresses[MOST_LINES][64], aliases[MOST_LINES][NAME_BYTES];
static int address_count, alias_count;

static void print(DWORD where, const char *format, const char *one, const char *two)
{
    static char text[NAME_BYTES * 3];
    DWORD written;

    text[sizeof text - 1] = 0;
    _snprintf(text, sizeof text - 1, format, one, two);
    WriteFile(GetStdHandle(where), text, lstrlenA(text), &written, NULL);
}

static DWORD read_number(int at, int bytes)
{
    DWORD value = 0;
    while (bytes--)
        value = value << 8 | (at < length ? message[at] : 0), at++;
    return value;
}

/* Reads the name at an offset of the answer; returns the offset after it, -1 if it is invalid. */
static int read_name(int at, char *name)
{
    int after = 0, size = 0;
    for (int steps = 0; at < length && steps < 128; steps++) {
        int count = message[at++];
        if (count >= 0xC0) {
            if (!after)
                after = at + 1;
            at = (count & 0x3F) << 8 | (at < length ? message[at] : 0);
        } else if (!count) {
            name[size ? size - 1 : 0] = 0;
            return after ? after : at;
        } else if (at + count <= length && size + count + 1 < NAME_BYTES) {
            memcpy(name + size, message + at, count);
            at += count;
            size += count;
            name[size++] = '.';
        } else {
            break;
        }
    }
    return -1;
}

static int write_question(const char *name, int type, WORD id)
{
    static const BYTE rest[10] = {1, 0, 0, 1}; /* recursion, one question */
    message[0] = id >> 8;
    message[1] = (BYTE)id;
    memcpy(message + 2, rest, sizeof rest);
    int at = 12;
    while (*name) {
        const char *dot = strchr(name, '.');
        int count = dot ? (int)(dot - name) : lstrlenA(name);
        if (!count || count > 63 || at + count > NAME_BYTES)
            return 0;
        message[at++] = (BYTE)count;
        memcpy(message + at, name, count);
        at += count;
        name += dot ? count + 1 : count;
    }
    memcpy(message + at, "\0\0\0\0\1", 5);
    message[at + 2] = (BYTE)type;
    return at + 5;
}

/* The response code of the answer, which is in `message`. */
static int query(const char *name, int type)
{
    static WORD id;
    SOCKET socket_ = socket(server.ss_family, SOCK_DGRAM, 0);
    DWORD patience = PATIENCE_MS;

    id += (WORD)(GetTickCount() * 2 + 1);
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, (const char *)&patience, sizeof patience);
    if (connect(socket_, (struct sockaddr *)&server, server_length))
        return NO_ANSWER;
    for (int i = 0; i < TRIES; i++) {
        int size = write_question(name, type, id);
        if (!size)
            break;
        send(socket_, (const char *)message, size, 0);
        while ((length = recv(socket_, (char *)message, sizeof message, 0)) > 0)
            if (length >= 12 && read_number(0, 2) == id && message[2] & 0x80) {
                closesocket(socket_);
                return message[3] & 15;
            }
    }
    closesocket(socket_);
    return NO_ANSWER;
}

/* The records of a type in the answer. */
static void collect_records(int type)
{
    char name[NAME_BYTES];
    int at = 12, answers = (int)read_number(6, 2);

    for (DWORD i = read_number(4, 2); i && at > 0; i--)
        at = read_name(at, name) + 4;
    for (; answers && at > 0; answers--) {
        at = read_name(at, name);
        if (at < 0 || at + 10 > length)
            return;
        int kind = (int)read_number(at, 2), size = (int)read_number(at + 8, 2);
        at += 10;
        if (kind == CNAME && alias_count < MOST_LINES) {
            lstrcpyA(aliases[alias_count++], name);
        } else if (kind == type && kind == PTR) {
            read_name(at, found_name);
        } else if (kind == type && address_count < MOST_LINES && size == (kind == A ? 4 : 16) && at + size <= length) {
            lstrcpyA(found_name, name);
            inet_ntop(kind == A ? AF_INET : AF_INET6, message + at, addresses[address_count++], sizeof *addresses);
        }
        at += size;
    }
}

/* Looks up both address families, as requested; the worst response code if there are none. */
static int look_up(const char *name, BOOL four, BOOL six)
{
    int code = 0;
    address_count = alias_count = 0;
    if (four && !(code = query(name, A)))
        collect_records(A);
    if (six && code != NO_ANSWER && code != NO_NAME) {
        int before = alias_count;
        code = query(name, AAAA);
        if (!code)
            collect_records(AAAA);
        if (four)
            alias_count = before; /* they are the same */
    }
    return address_count ? 0 : code;
}

static void reverse_name(const char *address, char *name)
{
    BYTE parts[4];
    inet_pton(AF_INET, address, parts);
    _snprintf(name, NAME_BYTES - 1, "%u.%u.%u.%u.in-addr.arpa", parts[3], parts[2], parts[1], parts[0]);
}

static void show_lines(const char *one, const char *many, int count, char *first, int size)
{
    for (int i = 0; i < count; i++)
        print(STD_OUTPUT_HANDLE, i ? "%s%s\r\n" : "%s  %s\r\n", i ? "\t  " : count > 1 ? many : one, first + i * size);
}

static void set_server(const SOCKET_ADDRESS *address)
{
    memcpy(&server, address->lpSockaddr, address->iSockaddrLength);
    server_length = address->iSockaddrLength;
    ((struct sockaddr_in *)&server)->sin_port = htons(53);
}

void start(void)
{
    int count, mode = 0;
    char **words, **variables, *name = NULL, *asked = NULL;
    static char suffix[NAME_BYTES], whole[NAME_BYTES * 2], shown[64];
    BOOL four = TRUE, six = TRUE;
    ULONG size = 65536;
    WSADATA about;

    __getmainargs(&count, &words, &variables, 0, &mode);
    WSAStartup(MAKEWORD(2, 2), &about);
    for (int i = 1; i < count; i++) {
        char *type = words[i][0] == '-' ? strchr(words[i], '=') : NULL;
        if (type) {
            four = lstrcmpiA(type + 1, "AAAA");
            six = lstrcmpiA(type + 1, "A");
        } else if (words[i][0] != '-') {
            *(name ? &asked : &name) = words[i];
        }
    }
    IP_ADAPTER_ADDRESSES *adapters = HeapAlloc(GetProcessHeap(), HEAP_ZERO_MEMORY, size);
    GetAdaptersAddresses(AF_UNSPEC, 0, NULL, adapters, &size);
    for (const IP_ADAPTER_ADDRESSES *each = adapters; each; each = each->Next) {
        if (!suffix[0])
            WideCharToMultiByte(CP_UTF8, 0, each->DnsSuffix, -1, suffix, sizeof suffix, NULL, NULL);
        if (!server_length && each->FirstDnsServerAddress)
            set_server(&each->FirstDnsServerAddress->Address);
    }
    if (asked) {
        struct addrinfo *found = NULL;
        if (getaddrinfo(asked, "53", NULL, &found)) {
            print(STD_ERROR_HANDLE, "*** Can't find address for server %s: Non-existent domain%s\r\n", asked, "");
            ExitProcess(1);
        }
        SOCKET_ADDRESS address = {found->ai_addr, (int)found->ai_addrlen};
        set_server(&address);
    }
    if (!name || !server_length) {
        print(STD_ERROR_HANDLE, "%s%s\r\n", name ? "*** Default servers are not available" : "*** interactive mode is not supported: a name is required", "");
        ExitProcess(1);
    }
    getnameinfo((struct sockaddr *)&server, server_length, shown, sizeof shown, NULL, 0, NI_NUMERICHOST);
    const char *called = "UnKnown";
    static char server_name[NAME_BYTES];
    if (server.ss_family == AF_INET) {
        reverse_name(shown, whole);
        if (!query(whole, PTR))
            collect_records(PTR);
        if (found_name[0]) {
            lstrcpyA(server_name, found_name);
            called = server_name;
        }
    }
    print(STD_OUTPUT_HANDLE, "Server:  %s\r\nAddress:  %s\r\n\r\n", called, shown);

    BYTE literal[16];
    int code = NO_NAME, end = lstrlenA(name) - 1;
    found_name[0] = 0;
    if (inet_pton(AF_INET, name, literal) == 1) {
        reverse_name(name, whole);
        if (!(code = query(whole, PTR)))
            collect_records(PTR);
        if (found_name[0]) {
            lstrcpyA(addresses[0], name);
            address_count = 1;
        }
    } else {
        if (suffix[0] && end >= 0 && name[end] != '.') {
            _snprintf(whole, sizeof whole - 1, "%s.%s", name, suffix);
            code = look_up(whole, four, six);
        }
        if (!address_count && code == NO_NAME) {
            lstrcpynA(whole, name, NAME_BYTES);
            if (end > 0 && whole[end] == '.')
                whole[end] = 0;
            code = look_up(whole, four, six);
        }
    }
    if (address_count) {
        print(STD_OUTPUT_HANDLE, "Name:    %s\r\n%s", found_name, "");
        show_lines("Address:", "Addresses:", address_count, addresses[0], sizeof *addresses);
        show_lines("Aliases:", "Aliases:", alias_count, aliases[0], sizeof *aliases);
        print(STD_OUTPUT_HANDLE, "\r\n%s%s", "", "");
    } else if (code == NO_ANSWER) {
        print(STD_OUTPUT_HANDLE, "DNS request timed out.\r\n    timeout was 2 seconds.\r\n%s%s", "", "");
        print(STD_ERROR_HANDLE, "*** Request to %s timed-out%s\r\n", called, "");
    } else if (!code) {
        print(STD_OUTPUT_HANDLE, "Name:    %s\r\n%s\r\n", whole, "");
    } else {
        print(STD_ERROR_HANDLE, "*** %s can't find %s: ", called, name);
        print(STD_ERROR_HANDLE, "%s%s\r\n", code == NO_NAME ? "Non-existent domain" : code == 2 ? "Server failed" : "Query refused", "");
    }
    ExitProcess(0);
}
