/* curl: the part of Windows' curl.exe that scripts and probes use, for http.
 *
 * Options: -s -S -f -L -i -I -v -g -G -k -q -N -4 -6, -o FILE, -X METHOD, -d DATA or @FILE (also --data-binary, --data-raw),
 * -H HEADER, -A AGENT, -m SECONDS, -w FORMAT, --connect-timeout SECONDS, --url URL, and their long names; several URLs.
 * Unknown options are rejected, as in curl. Not supported: https and other protocols, proxies, user names and
 * passwords, cookies, uploads and forms, compression, ranges, retries, configuration files. No progress is shown.
 */
#include <winsock2.h>
#include <ws2tcpip.h>
#include <windows.h>

#define NAME "curl/7.55.1"
#define MOST_HEADERS 64
#define MOST_URLS 32
#define MOST_REDIRECTS 50
#define URL_BYTES 8192
#define HEAD_BYTES 65536
#define CHUNK 16384

/* The parts of the C library that every Windows version has. */
void *memcpy(void *, const void *, size_t);
char *strchr(const char *, int);
char *strstr(const char *, const char *);
int strcmp(const char *, const char *);
int strncmp(const char *, const char *, size_t);
int atoi(const char *);
double atof(const char *);
int _snprintf(char *, size_t, const char *, ...);
int _vsnprintf(char *, size_t, const char *, va_list);
int __getmainargs(int *, char ***, char ***, int, int *);
int _fltused; /* required by floating-point code */

enum { UNSUPPORTED = 1, USAGE = 2, MALFORMED = 3, NO_HOST = 6, NO_CONNECTION = 7, REFUSED = 22, NOT_WRITTEN = 23,
       NOT_READ = 26, TIMED_OUT = 28, TOO_MANY = 47, NOTHING = 52, BROKEN = 56 };

static BOOL silent, show_errors, fail_fast, follow, include, head_only, verbose, as_query;
static const char *method, *output, *agent = NAME, *format, *headers[MOST_HEADERS], *urls[MOST_URLS];
static int header_count, url_count, family = AF_UNSPEC;
static ULONGLONG max_time_ms, connect_timeout_ms = 300000, began, deadline;
static char *data;
static DWORD data_length;
static HANDLE body_to = INVALID_HANDLE_VALUE;

static char url[URL_BYTES], host[URL_BYTES], path[URL_BYTES], port[8], request[URL_BYTES * 2], head[HEAD_BYTES], received_bytes[CHUNK];
static int received_at, received_end, status;
static LONGLONG received;
static SOCKET server = INVALID_SOCKET;

static void print(DWORD where, const char *text, int length)
{
    DWORD written;
    WriteFile(GetStdHandle(where), text, length < 0 ? (DWORD)lstrlenA(text) : (DWORD)length, &written, NULL);
}

/* Prints the text of -w. */
static void print_write_out(void)
{
    static char value[URL_BYTES];
    for (const char *c = format; c && *c; c++) {
        const char *end = *c == '%' && c[1] == '{' ? strchr(c, '}') : NULL;
        if (end) {
            DWORD spent = (DWORD)(GetTickCount64() - began);
            value[0] = 0;
            if (!strncmp(c, "%{http_code}", 12) || !strncmp(c, "%{response_code}", 16))
                _snprintf(value, sizeof value - 1, "%03d", status);
            else if (!strncmp(c, "%{size_download}", 16))
                _snprintf(value, sizeof value - 1, "%I64d", received);
            else if (!strncmp(c, "%{time_total}", 13))
                _snprintf(value, sizeof value - 1, "%lu.%03lu", spent / 1000, spent % 1000);
            else if (!strncmp(c, "%{url_effective}", 16))
                lstrcpynA(value, url, sizeof value);
            print(STD_OUTPUT_HANDLE, value, -1);
            c = end;
        } else if (*c == '\\' && (c[1] == 'n' || c[1] == 'r' || c[1] == 't')) {
            c++;
            print(STD_OUTPUT_HANDLE, *c == 'n' ? "\n" : *c == 'r' ? "\r" : "\t", 1);
        } else {
            print(STD_OUTPUT_HANDLE, c, 1);
        }
    }
}

static void __attribute__((noreturn)) fail(int code, const char *why, ...)
{
    static char text[URL_BYTES];
    va_list values;

    print_write_out();
    va_start(values, why);
    int length = _snprintf(text, sizeof text - 1, "curl: (%d) ", code);
    _vsnprintf(text + length, sizeof text - 1 - length, why, values);
    va_end(values);
    if (!silent || show_errors) {
        print(STD_ERROR_HANDLE, text, -1);
        print(STD_ERROR_HANDLE, "\r\n", 2);
    }
    ExitProcess(code);
}

static void __attribute__((noreturn)) refuse_option(const char *option, const char *why)
{
    print(STD_ERROR_HANDLE, "curl: option ", -1);
    print(STD_ERROR_HANDLE, option, -1);
    print(STD_ERROR_HANDLE, why, -1);
    print(STD_ERROR_HANDLE, "\r\ncurl: try 'curl --help' or 'curl --manual' for more information\r\n", -1);
    ExitProcess(USAGE);
}

static void __attribute__((noreturn)) fail_timeout(void)
{
    fail(TIMED_OUT, "Operation timed out after %I64u milliseconds with %I64d bytes received", GetTickCount64() - began, received);
}

/* Whether the socket is ready before the deadline; 0 for no deadline. */
static BOOL ready(SOCKET socket, BOOL to_write, ULONGLONG until)
{
    fd_set ours = {.fd_count = 1, .fd_array = {socket}}, wrong = ours;
    ULONGLONG now = GetTickCount64(), left = until > now ? until - now : 0;
    struct timeval wait = {(long)(left / 1000), (long)(left % 1000) * 1000};

    return select(0, to_write ? NULL : &ours, to_write ? &ours : NULL, &wrong, until ? &wait : NULL) > 0;
}

/* ---- one connection ---- */

static void connect_server(void)
{
    struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM}, *found = NULL;
    ULONGLONG until = began + connect_timeout_ms;
    int problem = 0;

    if (deadline && deadline < until)
        until = deadline;
    if (getaddrinfo(host, port, &hints, &found))
        fail(NO_HOST, "Could not resolve host: %s", host);
    for (struct addrinfo *each = found; each && server == INVALID_SOCKET; each = each->ai_next) {
        u_long yes = 1;
        int length = sizeof problem;
        SOCKET made = socket(each->ai_family, each->ai_socktype, each->ai_protocol);
        ioctlsocket(made, FIONBIO, &yes);
        problem = 0;
        if (connect(made, each->ai_addr, (int)each->ai_addrlen) && (problem = WSAGetLastError()) == WSAEWOULDBLOCK) {
            if (!ready(made, TRUE, until))
                fail(TIMED_OUT, "Connection timed out after %I64u milliseconds", GetTickCount64() - began);
            getsockopt(made, SOL_SOCKET, SO_ERROR, (char *)&problem, &length);
        }
        if (problem)
            closesocket(made);
        else
            server = made;
    }
    freeaddrinfo(found);
    if (server == INVALID_SOCKET)
        fail(NO_CONNECTION, "Failed to connect to %s port %s: %s", host, port,
                problem == WSAECONNREFUSED ? "Connection refused" : problem == WSAETIMEDOUT ? "Timed out" : "No route to host");
    if (verbose) {
        static char text[URL_BYTES + 64];
        _snprintf(text, sizeof text - 1, "* Connected to %s port %s\r\n", host, port);
        print(STD_ERROR_HANDLE, text, -1);
    }
}

static void send_all(const char *text, int length)
{
    while (length > 0) {
        int put = send(server, text, length, 0);
        if (put > 0) {
            text += put;
            length -= put;
        } else if (WSAGetLastError() != WSAEWOULDBLOCK) {
            return; /* the response of the server can still be read */
        } else if (!ready(server, TRUE, deadline)) {
            fail_timeout();
        }
    }
}

/* Reads more from the server; FALSE at the end. */
static BOOL receive_more(void)
{
    for (;;) {
        int got = recv(server, received_bytes, sizeof received_bytes, 0);
        received_at = 0;
        received_end = got > 0 ? got : 0;
        if (got >= 0)
            return got > 0;
        if (WSAGetLastError() != WSAEWOULDBLOCK)
            fail(BROKEN, "Recv failure: Connection was reset");
        if (!ready(server, FALSE, deadline))
            fail_timeout();
    }
}

static int next_byte(void)
{
    return received_at < received_end || receive_more() ? (unsigned char)received_bytes[received_at++] : -1;
}

static void write_body(const char *bytes, DWORD length)
{
    DWORD written;
    if (length && !WriteFile(body_to, bytes, length, &written, NULL))
        fail(NOT_WRITTEN, "Failed writing body");
    received += length;
}

static void copy_body(LONGLONG left)
{
    while (left && (received_at < received_end || receive_more())) {
        DWORD part = received_end - received_at < left ? (DWORD)(received_end - received_at) : (DWORD)left;
        write_body(received_bytes + received_at, part);
        received_at += part;
        left -= part;
    }
    if (left)
        fail(18, "transfer closed with %I64d bytes remaining to read", left);
}

static void copy_chunked_body(void)
{
    for (;;) {
        LONGLONG size = 0;
        int c, any = 0;
        while ((c = next_byte()) >= 0 && c != '\n') {
            int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
            if (any >= 0 && digit >= 0 && size < 1LL << 56) {
                size = size * 16 + digit;
                any = 1;
            } else {
                any = any ? -1 : 0; /* extensions follow the number */
            }
        }
        if (c < 0)
            fail(BROKEN, "Malformed encoding found in chunked-encoding");
        if (!size)
            return;
        copy_body(size);
        while ((c = next_byte()) >= 0 && c != '\n')
            ;
    }
}

/* ---- requests and responses ---- */

/* For -v: each line with a prefix. */
static void show(const char *mark, const char *lines)
{
    while (verbose && *lines) {
        const char *end = strchr(lines, '\n');
        int length = end ? (int)(end - lines) + 1 : lstrlenA(lines);
        print(STD_ERROR_HANDLE, mark, -1);
        print(STD_ERROR_HANDLE, lines, length);
        lines += length;
    }
}

static void split_url(void)
{
    const char *rest = strstr(url, "://");
    if (rest && _strnicmp(url, "http://", 7)) {
        static char scheme[32];
        lstrcpynA(scheme, url, rest - url < 31 ? (int)(rest - url) + 1 : 32);
        fail(UNSUPPORTED, "Protocol \"%s\" not supported or disabled in libcurl", scheme);
    }
    rest = rest ? rest + 3 : url;
    int length = 0;
    while (rest[length] && rest[length] != '/' && rest[length] != '?' && rest[length] != '#')
        length++;
    if (!length)
        fail(MALFORMED, "<url> malformed");
    lstrcpynA(host, rest, length + 1);
    rest += length;
    _snprintf(path, sizeof path - 1, "%s%s", *rest == '/' ? "" : "/", rest);
    char *fragment = strchr(path, '#');
    if (fragment)
        *fragment = 0;
    lstrcpyA(port, "80");
    char *after = host;
    if (host[0] == '[' && strchr(host, ']')) {
        char *end = strchr(host, ']');
        after = end + 1;
        *end = 0;
        lstrcpynA(host, host + 1, sizeof host);
        after -= 1;
        for (char *c = after; (*c = c[1]); c++)
            ;
    }
    char *colon = strchr(after, ':');
    if (colon) {
        if (colon[1])
            lstrcpynA(port, colon + 1, sizeof port);
        *colon = 0;
    }
}

static void send_request(const char *verb, BOOL with_data)
{
    BOOL own_host = FALSE, own_agent = FALSE, own_accept = FALSE, own_type = FALSE;
    for (int i = 0; i < header_count; i++) {
        own_host |= !_strnicmp(headers[i], "Host:", 5);
        own_agent |= !_strnicmp(headers[i], "User-Agent:", 11);
        own_accept |= !_strnicmp(headers[i], "Accept:", 7);
        own_type |= !_strnicmp(headers[i], "Content-Type:", 13);
    }
    int size = sizeof request - 1, at = _snprintf(request, size, "%s %s HTTP/1.1\r\n", verb, path);
    BOOL six = strchr(host, ':') != NULL;
    if (!own_host)
        at += _snprintf(request + at, size - at, strcmp(port, "80") ? "Host: %s%s%s:%s\r\n" : "Host: %s%s%s\r\n", six ? "[" : "",
                        host, six ? "]" : "", port);
    if (!own_agent)
        at += _snprintf(request + at, size - at, "User-Agent: %s\r\n", agent);
    if (!own_accept)
        at += _snprintf(request + at, size - at, "Accept: */*\r\n");
    at += _snprintf(request + at, size - at, "Connection: close\r\n");
    for (int i = 0; i < header_count; i++) {
        const char *value = strchr(headers[i], ':');
        if (value && value[1] && size - at > lstrlenA(headers[i]) + 64) /* `Name:` alone removes a header */
            at += _snprintf(request + at, size - at, "%s\r\n", headers[i]);
    }
    if (with_data) {
        at += _snprintf(request + at, size - at, "Content-Length: %lu\r\n", data_length);
        if (!own_type)
            at += _snprintf(request + at, size - at, "Content-Type: application/x-www-form-urlencoded\r\n");
    }
    at += _snprintf(request + at, size - at, "\r\n");
    show("> ", request);
    send_all(request, at);
    if (with_data)
        send_all(data, data_length);
}

/* The status line and headers of the response, up to the empty line. */
static void read_head(void)
{
    int length, c;
    do {
        length = 0;
        while (length < HEAD_BYTES - 1 && (c = next_byte()) >= 0) {
            head[length++] = (char)c;
            if (length >= 2 && c == '\n' && (head[length - 2] == '\n' || (length >= 4 && !strncmp(head + length - 4, "\r\n\r\n", 4))))
                break;
        }
        head[length] = 0;
        if (!length)
            fail(NOTHING, "Empty reply from server");
        if (strncmp(head, "HTTP/1.", 7) || length < 12)
            fail(8, "Weird server reply");
        status = atoi(head + 9);
        show("< ", head);
    } while (status >= 100 && status < 200);
}

/* The value of a header, or NULL; valid until the next call. */
static const char *header_value(const char *name)
{
    static char value[URL_BYTES];
    int length = lstrlenA(name);
    for (const char *line = strchr(head, '\n'); line; line = strchr(line, '\n')) {
        line++;
        if (!_strnicmp(line, name, length) && line[length] == ':') {
            for (line += length + 1; *line == ' ' || *line == '\t'; line++)
                ;
            int size = 0;
            while (line[size] && line[size] != '\r' && line[size] != '\n' && size < URL_BYTES - 1)
                size++;
            lstrcpynA(value, line, size + 1);
            return value;
        }
    }
    return NULL;
}

static void follow_redirect(const char *to)
{
    static char whole[URL_BYTES];
    if (strstr(to, "://")) {
        lstrcpynA(whole, to, sizeof whole);
    } else {
        char *last = path, *query = strchr(path, '?');
        if (query)
            *query = 0;
        for (char *c = path; *c; c++)
            if (*c == '/')
                last = c;
        last[1] = 0;
        BOOL six = strchr(host, ':') != NULL;
        _snprintf(whole, sizeof whole - 1, "http://%s%s%s:%s%s%s", six ? "[" : "", host, six ? "]" : "", port,
                  *to == '/' ? "" : path, to);
    }
    lstrcpynA(url, whole, sizeof url);
}

static void transfer(void)
{
    BOOL with_data = data && !as_query;
    const char *verb = method ? method : head_only ? "HEAD" : with_data ? "POST" : "GET";

    for (int redirects = 0;; redirects++) {
        split_url();
        if (as_query && data) {
            int at = lstrlenA(path);
            _snprintf(path + at, sizeof path - 1 - at, "%c%s", strchr(path, '?') ? '&' : '?', data);
        }
        received_at = received_end = 0;
        connect_server();
        send_request(verb, with_data);
        read_head();
        const char *to = status / 100 == 3 ? header_value("Location") : NULL;
        if (!follow || !to)
            break;
        if (redirects == MOST_REDIRECTS)
            fail(TOO_MANY, "Maximum (%d) redirects followed", MOST_REDIRECTS);
        if (include || head_only)
            write_body(head, lstrlenA(head));
        follow_redirect(to);
        if (status != 307 && status != 308 && with_data) {
            with_data = FALSE;
            verb = method ? method : "GET";
        }
        closesocket(server);
        server = INVALID_SOCKET;
    }
    if (fail_fast && status >= 400) {
        static char line[256];
        lstrcpynA(line, head + 9, sizeof line);
        for (char *c = line; *c; c++)
            if (*c == '\r' || *c == '\n')
                *c = 0;
        fail(REFUSED, "The requested URL returned error: %s", line);
    }
    if (include || head_only) {
        write_body(head, lstrlenA(head));
        received = 0;
    }
    if (!head_only && strcmp(verb, "HEAD") && status != 204 && status != 304) {
        const char *coding = header_value("Transfer-Encoding");
        const char *length = coding ? NULL : header_value("Content-Length");
        if (coding && !_stricmp(coding, "chunked"))
            copy_chunked_body();
        else if (length)
            copy_body(_strtoi64(length, NULL, 10));
        else
            while (received_at < received_end || receive_more()) {
                write_body(received_bytes + received_at, received_end - received_at);
                received_at = received_end;
            }
    }
    closesocket(server);
    server = INVALID_SOCKET;
}

/* ---- the command line ---- */

static void add_data(const char *text, BOOL binary, BOOL from_file)
{
    DWORD length = lstrlenA(text), got = 0;
    char *read = NULL;
    if (from_file && *text == '@') {
        HANDLE file = strcmp(text, "@-") ? CreateFileA(text + 1, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL)
                                         : GetStdHandle(STD_INPUT_HANDLE);
        if (file == INVALID_HANDLE_VALUE)
            fail(NOT_READ, "Failed to open %s", text + 1);
        length = 0;
        for (DWORD size = CHUNK;; size *= 2) {
            read = read ? HeapReAlloc(GetProcessHeap(), 0, read, size) : HeapAlloc(GetProcessHeap(), 0, size);
            while (length < size && ReadFile(file, read + length, size - length, &got, NULL) && got)
                length += got;
            if (length < size)
                break;
        }
        DWORD size = 0;
        for (DWORD i = 0; i < length; i++)
            if (binary || (read[i] != '\r' && read[i] != '\n'))
                read[size++] = read[i];
        length = size;
        text = read;
    }
    char *joined = HeapAlloc(GetProcessHeap(), 0, data_length + length + 2);
    DWORD at = 0;
    if (data) {
        memcpy(joined, data, data_length);
        at = data_length;
        joined[at++] = '&';
    }
    memcpy(joined + at, text, length);
    data_length = at + length;
    joined[data_length] = 0;
    data = joined;
}

static const struct { const char *name; char letter; } LONG_OPTIONS[] = {
    {"silent", 's'}, {"show-error", 'S'}, {"fail", 'f'}, {"location", 'L'}, {"include", 'i'}, {"head", 'I'}, {"verbose", 'v'},
    {"globoff", 'g'}, {"get", 'G'}, {"insecure", 'k'}, {"disable", 'q'}, {"no-buffer", 'N'}, {"ipv4", '4'}, {"ipv6", '6'},
    {"output", 'o'}, {"request", 'X'}, {"data", 'd'}, {"data-ascii", 'd'}, {"data-binary", 'b'}, {"data-raw", 'r'},
    {"header", 'H'}, {"user-agent", 'A'}, {"max-time", 'm'}, {"write-out", 'w'}, {"connect-timeout", 'c'}, {"url", 'u'},
    {"http1.1", 'N'}, {"version", 'V'},
};

static void set_option(char letter, const char *value, const char *shown)
{
    switch (letter) {
    case 's': silent = TRUE; break;
    case 'S': show_errors = TRUE; break;
    case 'f': fail_fast = TRUE; break;
    case 'L': follow = TRUE; break;
    case 'i': include = TRUE; break;
    case 'I': head_only = TRUE; break;
    case 'v': verbose = TRUE; break;
    case 'G': as_query = TRUE; break;
    case 'g': case 'k': case 'q': case 'N': break; /* this is the default here */
    case '4': family = AF_INET; break;
    case '6': family = AF_INET6; break;
    case 'V': print(STD_OUTPUT_HANDLE, NAME " (Windows), http only\r\nProtocols: http\r\n", -1); ExitProcess(0);
    case 'o': output = value; break;
    case 'X': method = value; break;
    case 'd': add_data(value, FALSE, TRUE); break;
    case 'b': add_data(value, TRUE, TRUE); break;
    case 'r': add_data(value, TRUE, FALSE); break;
    case 'H':
        if (header_count < MOST_HEADERS)
            headers[header_count++] = value;
        break;
    case 'A': agent = value; break;
    case 'm': max_time_ms = (ULONGLONG)(atof(value) * 1000); break;
    case 'c': connect_timeout_ms = (ULONGLONG)(atof(value) * 1000); break;
    case 'w': format = value; break;
    case 'u':
        if (url_count < MOST_URLS)
            urls[url_count++] = value;
        break;
    default: refuse_option(shown, ": is unknown");
    }
}

static void read_arguments(int count, char **words)
{
    static const char *const with_value = "oXdbrHAmwcu", *const long_only = "brcu";
    for (int i = 1; i < count; i++) {
        char *word = words[i];
        if (word[0] == '-' && word[1] == '-') {
            char letter = 0;
            for (unsigned each = 0; each < sizeof LONG_OPTIONS / sizeof *LONG_OPTIONS; each++)
                if (!strcmp(LONG_OPTIONS[each].name, word + 2))
                    letter = LONG_OPTIONS[each].letter;
            BOOL wants = letter && strchr(with_value, letter);
            if (wants && i + 1 == count)
                refuse_option(word, ": requires parameter");
            set_option(letter, wants ? words[++i] : NULL, word);
        } else if (word[0] == '-' && word[1]) {
            for (char *c = word + 1; *c; c++) {
                if (strchr(long_only, *c))
                    refuse_option(word, ": is unknown");
                if (strchr(with_value, *c)) {
                    if (!c[1] && i + 1 == count)
                        refuse_option(word, ": requires parameter");
                    set_option(*c, c[1] ? c + 1 : words[++i], word);
                    break;
                }
                set_option(*c, NULL, word);
            }
        } else {
            set_option('u', word, word);
        }
    }
}

void start(void)
{
    int count, mode = 0;
    char **words, **variables;
    WSADATA about;

    __getmainargs(&count, &words, &variables, 0, &mode);
    read_arguments(count, words);
    WSAStartup(MAKEWORD(2, 2), &about);
    if (!url_count) {
        print(STD_ERROR_HANDLE, "curl: try 'curl --help' or 'curl --manual' for more information\r\n", -1);
        ExitProcess(USAGE);
    }
    body_to = !output || !strcmp(output, "-") ? GetStdHandle(STD_OUTPUT_HANDLE)
              : CreateFileA(strcmp(output, "/dev/null") ? output : "NUL", GENERIC_WRITE, FILE_SHARE_READ, NULL, CREATE_ALWAYS, 0, NULL);
    if (body_to == INVALID_HANDLE_VALUE)
        fail(NOT_WRITTEN, "Failed writing body");
    for (int i = 0; i < url_count; i++) {
        lstrcpynA(url, urls[i], sizeof url);
        began = GetTickCount64();
        deadline = max_time_ms ? began + max_time_ms : 0;
        received = status = 0;
        transfer();
        print_write_out();
    }
    ExitProcess(0);
}
