/* ping: the part of Windows' ping.exe that is commonly used; Wine's has no -t, with which documented pods keep running.
 *
 * ping [-t] [-n COUNT] [-l SIZE] [-w MILLISECONDS] [-i TTL] [-4] NAME|ADDRESS     options also with a slash; IPv4 only
 *
 * -t continues until CTRL+C, which shows the statistics first; CTRL+BREAK shows them and continues. The exit code is 0 if
 * there was a reply.
 */
#include <winsock2.h>
#include <ws2tcpip.h>
#include <iphlpapi.h>
#include <icmpapi.h>
#include <windows.h>

#define PAUSE_MS 1000
#define LARGEST 65500
#define REPLY_EXTRA (sizeof(ICMP_ECHO_REPLY) + 64)

/* The parts of the C library that every Windows version has. */
int _snprintf(char *, size_t, const char *, ...);
int __getmainargs(int *, char ***, char ***, int, int *);

static char shown[64];
static volatile DWORD sent, received, total, shortest = ~0u, longest;

static void print(const char *text)
{
    DWORD written;
    WriteFile(GetStdHandle(STD_OUTPUT_HANDLE), text, lstrlenA(text), &written, NULL);
}

static void sums(void)
{
    char text[400];
    DWORD lost = sent - received;
    _snprintf(text, sizeof text, "\r\nPing statistics for %s:\r\n    Packets: Sent = %u, Received = %u, Lost = %u (%u%% loss),\r\n",
              shown, (unsigned)sent, (unsigned)received, (unsigned)lost, (unsigned)(sent ? lost * 100 / sent : 0));
    print(text);
    if (received) {
        _snprintf(text, sizeof text,
                  "Approximate round trip times in milli-seconds:\r\n    Minimum = %ums, Maximum = %ums, Average = %ums\r\n",
                  (unsigned)shortest, (unsigned)longest, (unsigned)(total / received));
        print(text);
    }
}

static BOOL WINAPI on_event(DWORD event)
{
    if (event > CTRL_BREAK_EVENT)
        return FALSE;
    sums();
    if (event == CTRL_BREAK_EVENT)
        return TRUE;
    print("Control-C\r\n");
    return FALSE;
}

/* A number, or -1. */
static long number(const char *text)
{
    long value = 0;
    if (!*text)
        return -1;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || value > 200000000)
            return -1;
        value = value * 10 + (*text - '0');
    }
    return value;
}

static void refuse(const char *format, const char *what)
{
    char text[300];
    text[sizeof text - 1] = 0;
    _snprintf(text, sizeof text - 1, format, what);
    print(text);
    ExitProcess(1);
}

static void one(HANDLE icmp, ULONG address, BYTE *data, WORD size, DWORD patience, BYTE ttl, BYTE *reply)
{
    IP_OPTION_INFORMATION options = {.Ttl = ttl};
    char text[200], from[64];
    DWORD count = IcmpSendEcho(icmp, address, data, size, &options, reply, size + REPLY_EXTRA, patience);
    ICMP_ECHO_REPLY *answer = (ICMP_ECHO_REPLY *)reply;
    DWORD status = count ? answer->Status : GetLastError();

    sent++;
    if (count && status == IP_SUCCESS) {
        DWORD took = answer->RoundTripTime;
        received++;
        total += took;
        shortest = took < shortest ? took : shortest;
        longest = took > longest ? took : longest;
        inet_ntop(AF_INET, &answer->Address, from, sizeof from);
        if (took)
            _snprintf(text, sizeof text, "Reply from %s: bytes=%u time=%ums TTL=%u\r\n", from, answer->DataSize, (unsigned)took,
                      answer->Options.Ttl);
        else
            _snprintf(text, sizeof text, "Reply from %s: bytes=%u time<1ms TTL=%u\r\n", from, answer->DataSize, answer->Options.Ttl);
        print(text);
        return;
    }
    if (status == IP_REQ_TIMED_OUT) {
        print("Request timed out.\r\n");
        return;
    }
    inet_ntop(AF_INET, count ? (void *)&answer->Address : (void *)&address, from, sizeof from);
    if (status == IP_DEST_HOST_UNREACHABLE || status == IP_DEST_NET_UNREACHABLE || status == IP_TTL_EXPIRED_TRANSIT) {
        _snprintf(text, sizeof text, "Reply from %s: %s.\r\n", from,
                  status == IP_DEST_HOST_UNREACHABLE  ? "Destination host unreachable"
                  : status == IP_DEST_NET_UNREACHABLE ? "Destination net unreachable"
                                                      : "TTL expired in transit");
        print(text);
        return;
    }
    print("PING: transmit failed. General failure.\r\n");
}

void start(void)
{
    int count, globbing = 0;
    char **words, **variables, text[400];
    const char *host = NULL;
    long limit = 4, size = 32, patience = 4000, ttl = 128;
    BOOL forever = FALSE;
    WSADATA data;

    __getmainargs(&count, &words, &variables, 0, &globbing);
    for (int i = 1; i < count; i++) {
        const char *word = words[i];
        if (*word != '-' && *word != '/') {
            host = word;
            continue;
        }
        char letter = word[1] && !word[2] ? word[1] | 32 : 0;
        long *value = letter == 'n' ? &limit : letter == 'l' ? &size : letter == 'w' ? &patience : letter == 'i' ? &ttl : NULL;
        if (value) {
            if (i + 1 >= count)
                refuse("Value must be supplied for option %s.\r\n", word);
            if ((*value = number(words[++i])) < (value == &size ? 0 : 1))
                refuse("Bad value for option %s.\r\n", word);
        } else if (letter == 't') {
            forever = TRUE;
        } else if (word[1] != '4' && letter != 'a' && letter != 'f') {
            refuse("Bad option %s.\r\n\r\nUsage: ping [-t] [-n count] [-l size] [-w timeout] [-i TTL] [-4] target_name\r\n", word);
        }
    }
    if (!host)
        refuse("\r\nUsage: ping [-t] [-n count] [-l size] [-w timeout] [-i TTL] [-4] target_name\r\n%s", "");
    if (size > LARGEST)
        refuse("Bad value for option -l, valid range is from 0 to 65500.\r\n%s", "");
    struct addrinfo hints = {.ai_family = AF_INET}, *found;
    if (WSAStartup(MAKEWORD(2, 2), &data) || getaddrinfo(host, NULL, &hints, &found))
        refuse("Ping request could not find host %s. Please check the name and try again.\r\n", host);
    ULONG address = ((struct sockaddr_in *)found->ai_addr)->sin_addr.s_addr;
    inet_ntop(AF_INET, &address, shown, sizeof shown);
    if (lstrcmpiA(host, shown))
        _snprintf(text, sizeof text - 1, "\r\nPinging %s [%s] with %ld bytes of data:\r\n", host, shown, size);
    else
        _snprintf(text, sizeof text - 1, "\r\nPinging %s with %ld bytes of data:\r\n", shown, size);
    text[sizeof text - 1] = 0;
    print(text);

    HANDLE icmp = IcmpCreateFile();
    BYTE *payload = HeapAlloc(GetProcessHeap(), 0, size + 1), *reply = HeapAlloc(GetProcessHeap(), 0, size + REPLY_EXTRA);
    for (long i = 0; i < size; i++)
        payload[i] = 'a' + i % 23;
    SetConsoleCtrlHandler(on_event, TRUE);
    for (long turn = 0; forever || turn < limit; turn++) {
        if (turn)
            Sleep(PAUSE_MS);
        one(icmp, address, payload, (WORD)size, (DWORD)patience, (BYTE)ttl, reply);
    }
    sums();
    ExitProcess(received ? 0 : 1);
}
