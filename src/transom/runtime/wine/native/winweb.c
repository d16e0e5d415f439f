/* winweb: a small web server and client for Windows, for the demo.
 *
 * winweb serve PORT [OTHER]  /hello returns one line about this server; other paths show it together with the content of http://OTHER
 * winweb get URL             prints the response; the exit code is 0 for the status 200, else 1
 *
 * It shuts down on the control events of the console, with which Windows stops containers.
 */
#include <winsock2.h>
#include <ws2tcpip.h>
#include <windows.h>

#define REQUEST_BYTES 8192
#define ANSWER_BYTES 65536
#define NAME_BYTES 256
#define TIMEOUT_MS 5000

/* The parts of the C library that every Windows version has. */
int _snprintf(char *, size_t, const char *, ...);
char *strchr(const char *, int);
char *strstr(const char *, const char *);
int strncmp(const char *, const char *, size_t);
int atoi(const char *);
LONG WINAPI RtlGetVersion(OSVERSIONINFOW *);

static HANDLE output, stopping;
static char *other; /* NAME[:PORT]/PATH, or NULL */

static void print(const char *text)
{
    DWORD written;
    WriteFile(output, text, lstrlenA(text), &written, NULL);
}

static BOOL send_all(SOCKET to, const char *text, int length)
{
    for (int put; length > 0; text += put, length -= put)
        if ((put = send(to, text, length, 0)) <= 0)
            return FALSE;
    return TRUE;
}

static void set_timeouts(SOCKET socket)
{
    DWORD limit = TIMEOUT_MS;
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, (const char *)&limit, sizeof limit);
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, (const char *)&limit, sizeof limit);
}

static SOCKET connect_to(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    SOCKET made = INVALID_SOCKET;

    if (getaddrinfo(host, port, &hints, &found))
        return INVALID_SOCKET;
    for (struct addrinfo *each = found; each && made == INVALID_SOCKET; each = each->ai_next) {
        made = socket(each->ai_family, each->ai_socktype, each->ai_protocol);
        set_timeouts(made);
        if (connect(made, each->ai_addr, (int)each->ai_addrlen)) {
            closesocket(made);
            made = INVALID_SOCKET;
        }
    }
    freeaddrinfo(found);
    return made;
}

/* The body of a response, in `answer`, and its status; 0 and a reason if there is none. */
static int fetch(const char *url, char *answer, const char **body)
{
    char host[NAME_BYTES], request[NAME_BYTES * 3];
    const char *port = "80", *path, *scheme = strstr(url, "://");
    int length = 0, got;

    if (scheme)
        url = scheme + 3;
    path = strchr(url, '/');
    lstrcpynA(host, url, path && path - url < NAME_BYTES ? (int)(path - url) + 1 : NAME_BYTES);
    _snprintf(request, sizeof request - 1, "GET %s HTTP/1.0\r\nHost: %s\r\nConnection: close\r\n\r\n", path ? path : "/", host);
    request[sizeof request - 1] = 0;
    char *colon = strchr(host, ':');
    if (colon) {
        *colon = 0;
        port = colon + 1;
    }
    SOCKET server = connect_to(host, port);
    if (server == INVALID_SOCKET) {
        *body = "cannot connect to the server, or cannot resolve its name\n";
        return 0;
    }
    send_all(server, request, lstrlenA(request));
    while (length < ANSWER_BYTES - 1 && (got = recv(server, answer + length, ANSWER_BYTES - 1 - length, 0)) > 0)
        length += got;
    closesocket(server);
    answer[length] = 0;
    const char *end = strstr(answer, "\r\n\r\n");
    if (strncmp(answer, "HTTP/1.", 7) || !end) {
        *body = "the response is not HTTP\n";
        return 0;
    }
    *body = end + 4;
    return atoi(answer + 9);
}

static void describe_server(char *text, int size)
{
    char name[NAME_BYTES] = "?";
    OSVERSIONINFOW version = {.dwOSVersionInfoSize = sizeof version};

    gethostname(name, sizeof name);
    RtlGetVersion(&version);
    _snprintf(text, size - 1, "hello from %s, a web server on Windows %lu.%lu.%lu\n", name, version.dwMajorVersion,
              version.dwMinorVersion, version.dwBuildNumber);
    text[size - 1] = 0;
}

static int show_page(char *page, int size, const char *me)
{
    char *answer = HeapAlloc(GetProcessHeap(), 0, ANSWER_BYTES);
    const char *content = "";

    if (other && answer)
        fetch(other, answer, &content);
    int length = _snprintf(page, size - 1, "<!DOCTYPE html><title>Windows</title>\n<h1>Windows</h1>\n<p>%s</p>\n%s%s%s%s%s", me,
                           other ? "<p>http://" : "", other ? other : "", other ? ":</p>\n<pre>" : "", content,
                           other ? "</pre>\n" : "");
    HeapFree(GetProcessHeap(), 0, answer);
    return length < 0 ? size - 1 : length;
}

static DWORD WINAPI serve_client(void *argument)
{
    SOCKET client = (SOCKET)argument;
    char *request = HeapAlloc(GetProcessHeap(), 0, REQUEST_BYTES), *page = HeapAlloc(GetProcessHeap(), 0, ANSWER_BYTES);
    char head[NAME_BYTES], me[NAME_BYTES];
    int length = 0, got;

    set_timeouts(client);
    while (request && page && length < REQUEST_BYTES - 1) {
        if ((got = recv(client, request + length, REQUEST_BYTES - 1 - length, 0)) <= 0)
            break;
        length += got;
        request[length] = 0;
        if (!strstr(request, "\r\n\r\n"))
            continue;
        describe_server(me, sizeof me);
        BOOL plain = !strncmp(request, "GET /hello", 10);
        int size = plain ? lstrlenA(lstrcpyA(page, me)) : show_page(page, ANSWER_BYTES, me);
        _snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Type: %s; charset=utf-8\r\nContent-Length: %d\r\n"
                  "Connection: close\r\n\r\n", plain ? "text/plain" : "text/html", size);
        if (send_all(client, head, lstrlenA(head)))
            send_all(client, page, size);
        *strchr(request, '\r') = 0;
        _snprintf(page, ANSWER_BYTES, "%s 200\r\n", request);
        print(page);
        break;
    }
    shutdown(client, SD_SEND);
    closesocket(client);
    HeapFree(GetProcessHeap(), 0, request);
    HeapFree(GetProcessHeap(), 0, page);
    return 0;
}

static DWORD WINAPI accept_all(void *listening)
{
    for (SOCKET client; (client = accept((SOCKET)listening, NULL, NULL)) != INVALID_SOCKET;)
        CloseHandle(CreateThread(NULL, 0, serve_client, (void *)client, 0, NULL));
    return 0;
}

static BOOL WINAPI on_event(DWORD event)
{
    (void)event;
    SetEvent(stopping);
    Sleep(INFINITE);
    return TRUE;
}

static DWORD serve(const char *port)
{
    SOCKET listening = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((u_short)atoi(port))};

    stopping = CreateEventW(NULL, TRUE, FALSE, NULL);
    SetConsoleCtrlHandler(on_event, TRUE);
    if (bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 64)) {
        print("the port is already in use\r\n");
        return 1;
    }
    CreateThread(NULL, 0, accept_all, (void *)listening, 0, NULL);
    print("listening on port ");
    print(port);
    print("\r\n");
    WaitForSingleObject(stopping, INFINITE);
    print("received a control event, shutting down\r\n");
    return 0;
}

static DWORD get(const char *url)
{
    char *answer = HeapAlloc(GetProcessHeap(), 0, ANSWER_BYTES);
    const char *body;
    int status = fetch(url, answer, &body);

    if (status != 200)
        output = GetStdHandle(STD_ERROR_HANDLE);
    print(body);
    return status == 200 ? 0 : 1;
}

/* Words have no spaces and no quotes in them; the first one is the program. */
static int split_arguments(char *line, char **words, int most)
{
    int count = 0;

    while (*line && count < most) {
        BOOL quoted = *line == '"';
        words[count++] = line += quoted;
        while (*line && *line != (quoted ? '"' : ' '))
            line++;
        while (*line == '"' || *line == ' ')
            *line++ = 0;
    }
    return count;
}

void start(void)
{
    WSADATA sockets;
    char *words[4] = {NULL, "", "", NULL};
    int count = split_arguments(GetCommandLineA(), words, 4);

    output = GetStdHandle(STD_OUTPUT_HANDLE);
    WSAStartup(MAKEWORD(2, 2), &sockets);
    other = words[3];
    if (count > 2 && !lstrcmpA(words[1], "serve"))
        ExitProcess(serve(words[2]));
    if (count > 2 && !lstrcmpA(words[1], "get"))
        ExitProcess(get(words[2]));
    print("winweb serve PORT [OTHER]\r\nwinweb get URL\r\n");
    ExitProcess(2);
}
