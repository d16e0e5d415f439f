/* A Windows program for tests: probe.exe WHAT ARGUMENT...
 *
 * exit CODE        ends with it, all 32 bits
 * args ...         prints each argument on a line
 * repeat           everything that comes in goes out
 * random           asks bcryptprimitives.dll for random bytes, as programs made by Go do
 * crash            writes to address 0
 * commit           allocates and touches memory until there is no more; the exit code says how many MiB it got
 * wait HOW         prints "ready" and waits; on a console control event: `end` prints it and ends with 42 a little later,
 *                  `return` prints it and returns from the handler, `stay` prints it and does nothing, `none` has no handler
 * serve PORT       as `wait end`, and echoes what it gets over TCP
 * lookup NAME      prints the address of a name, or the error
 * pipe NAME TEXT   writes a text to a named pipe and prints the answer
 * service FILE     is the service "probe"; appends the controls that it gets to a file
 * window           prints "ready" and shows a window; on WM_CLOSE prints it and ends with 43
 * variables        prints the names of all variables, as the two functions of Windows list them
 * identity         prints its SID, and what Windows calls that account
 */
#include <winsock2.h>
#include <ws2tcpip.h>
#include <windows.h>
#include <sddl.h>

#define ENDED_BY_EVENT 42
#define ENDED_BY_MESSAGE 43

static HANDLE output, over;
static char mode;

static int length_of(const char *text)
{
    int length = 0;
    while (text[length])
        length++;
    return length;
}

static void say(const char *text)
{
    DWORD written;
    WriteFile(output, text, length_of(text), &written, NULL);
}

static void say_number(const char *before, DWORD number)
{
    char digits[11] = {0};
    int at = 10;
    do
        digits[--at] = '0' + number % 10;
    while (number /= 10);
    say(before);
    say(digits + at);
    say("\n");
}

static DWORD read_number(const WCHAR *text)
{
    DWORD number = 0;
    while (*text >= L'0' && *text <= L'9')
        number = number * 10 + (*text++ - L'0');
    return number;
}

static BOOL equal(const WCHAR *one, const WCHAR *other)
{
    return lstrcmpW(one, other) == 0;
}

static void to_utf8(const WCHAR *text, char *bytes, int size)
{
    WideCharToMultiByte(CP_UTF8, 0, text, -1, bytes, size, NULL, NULL);
}

static BOOL WINAPI on_event(DWORD event)
{
    say_number("event ", event);
    if (mode == 'r')
        return TRUE;
    if (mode == 'e')
        SetEvent(over);
    Sleep(INFINITE);
    return TRUE;
}

static DWORD wait(void)
{
    over = CreateEventW(NULL, TRUE, FALSE, NULL);
    if (mode != 'n')
        SetConsoleCtrlHandler(on_event, TRUE);
    say("ready\n");
    WaitForSingleObject(over, INFINITE);
    Sleep(100);
    say("bye\n");
    return ENDED_BY_EVENT;
}

static DWORD WINAPI echo(void *socket)
{
    char buffer[2048];
    int got;
    while ((got = recv((SOCKET)socket, buffer, sizeof buffer, 0)) > 0)
        send((SOCKET)socket, buffer, got, 0);
    closesocket((SOCKET)socket);
    return 0;
}

static DWORD WINAPI accept_all(void *listening)
{
    for (SOCKET client; (client = accept((SOCKET)listening, NULL, NULL)) != INVALID_SOCKET;)
        CreateThread(NULL, 0, echo, (void *)client, 0, NULL);
    return 0;
}

static DWORD serve(const WCHAR *port)
{
    SOCKET listening = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((u_short)read_number(port))};
    if (bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 16))
        return 1;
    CreateThread(NULL, 0, accept_all, (void *)listening, 0, NULL);
    mode = 'e';
    return wait();
}

static DWORD lookup(const WCHAR *name)
{
    ADDRINFOW hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    int error = GetAddrInfoW(name, NULL, &hints, &found);
    if (error) {
        say_number("error ", error);
        return 1;
    }
    say(inet_ntoa(((struct sockaddr_in *)found->ai_addr)->sin_addr));
    say("\n");
    return 0;
}

static DWORD talk(const WCHAR *pipe, const WCHAR *text)
{
    char buffer[2048] = {0};
    DWORD count;
    HANDLE file = INVALID_HANDLE_VALUE;
    for (int i = 0; i < 200 && file == INVALID_HANDLE_VALUE; i++) {
        file = CreateFileW(pipe, GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING, 0, NULL);
        if (file == INVALID_HANDLE_VALUE)
            Sleep(20);
    }
    if (file == INVALID_HANDLE_VALUE)
        return GetLastError();
    to_utf8(text, buffer, sizeof buffer);
    WriteFile(file, buffer, length_of(buffer), &count, NULL);
    if (!ReadFile(file, buffer, sizeof buffer - 1, &count, NULL))
        return GetLastError();
    buffer[count] = 0;
    say(buffer);
    return 0;
}

static DWORD random(void)
{
    BYTE bytes[32] = {0}, any = 0;
    BOOL(WINAPI * prng)(PBYTE, SIZE_T) = (void *)GetProcAddress(LoadLibraryW(L"bcryptprimitives.dll"), "ProcessPrng");
    if (!prng || !prng(bytes, sizeof bytes))
        return 1;
    for (unsigned i = 0; i < sizeof bytes; i++)
        any |= bytes[i];
    return !any;
}

static DWORD repeat(void)
{
    char buffer[1024];
    DWORD got, put;
    while (ReadFile(GetStdHandle(STD_INPUT_HANDLE), buffer, sizeof buffer, &got, NULL) && got)
        WriteFile(output, buffer, got, &put, NULL);
    return 0;
}

static DWORD commit(void)
{
    DWORD got = 0;
    for (; got < 4096; got++) {
        char *memory = VirtualAlloc(NULL, 1 << 20, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
        if (!memory)
            break;
        for (int page = 0; page < 256; page++)
            memory[page * 4096] = 1;
    }
    return got;
}

static SERVICE_STATUS_HANDLE service;
static SERVICE_STATUS status = {.dwServiceType = SERVICE_WIN32_OWN_PROCESS, .dwCurrentState = SERVICE_RUNNING,
                                .dwControlsAccepted = SERVICE_ACCEPT_STOP | SERVICE_ACCEPT_SHUTDOWN};
static const WCHAR *control_log = L"";

static void log_control(DWORD what)
{
    HANDLE file = CreateFileW(control_log, FILE_APPEND_DATA, FILE_SHARE_READ, NULL, OPEN_ALWAYS, 0, NULL);
    if (file == INVALID_HANDLE_VALUE)
        return;
    output = file;
    say_number("control ", what);
    CloseHandle(file);
}

static DWORD WINAPI control(DWORD what, DWORD type, void *data, void *context)
{
    (void)type, (void)data, (void)context;
    log_control(what);
    if (what == SERVICE_CONTROL_STOP || what == SERVICE_CONTROL_SHUTDOWN)
        SetEvent(over);
    return NO_ERROR;
}

static void WINAPI service_main(DWORD count, WCHAR **arguments)
{
    (void)count, (void)arguments;
    over = CreateEventW(NULL, TRUE, FALSE, NULL);
    service = RegisterServiceCtrlHandlerExW(L"probe", control, NULL);
    SetServiceStatus(service, &status);
    WaitForSingleObject(over, INFINITE);
    status.dwCurrentState = SERVICE_STOPPED;
    SetServiceStatus(service, &status);
}

static LRESULT CALLBACK on_message(HWND window, UINT message, WPARAM first, LPARAM second)
{
    if (message == WM_CLOSE) {
        say_number("message ", message);
        PostQuitMessage(ENDED_BY_MESSAGE);
        return 0;
    }
    return DefWindowProcW(window, message, first, second);
}

static DWORD show_window(void)
{
    WNDCLASSW class = {.lpfnWndProc = on_message, .lpszClassName = L"probe"};
    MSG message = {0};
    RegisterClassW(&class);
    if (!CreateWindowW(L"probe", L"probe", WS_OVERLAPPEDWINDOW | WS_VISIBLE, 0, 0, 90, 90, NULL, NULL, NULL, NULL))
        return 1;
    say("ready\n");
    while (GetMessageW(&message, NULL, 0, 0) > 0)
        DispatchMessageW(&message);
    return (DWORD)message.wParam;
}

static DWORD list_variables(void)
{
    static char text[65536];
    for (WCHAR *at = GetEnvironmentStringsW(); *at; at += lstrlenW(at) + 1) {
        to_utf8(at, text, sizeof text);
        say("W ");
        say(text);
        say("\n");
    }
    for (char *at = GetEnvironmentStrings(); *at; at += length_of(at) + 1) {
        say("A ");
        say(at);
        say("\n");
    }
    return 0;
}

static DWORD identify(void)
{
    BYTE user[256];
    WCHAR *text, name[64], domain[64];
    char bytes[256];
    DWORD size, name_size = 64, domain_size = 64;
    SID_NAME_USE use;
    HANDLE token;
    OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token);
    GetTokenInformation(token, TokenUser, user, sizeof user, &size);
    ConvertSidToStringSidW(((TOKEN_USER *)user)->User.Sid, &text);
    to_utf8(text, bytes, sizeof bytes);
    say(bytes);
    say("\n");
    if (!LookupAccountSidW(NULL, ((TOKEN_USER *)user)->User.Sid, name, &name_size, domain, &domain_size, &use))
        return GetLastError();
    to_utf8(domain, bytes, sizeof bytes);
    say(bytes);
    say("\\");
    to_utf8(name, bytes, sizeof bytes);
    say(bytes);
    say("\n");
    return 0;
}

static DWORD run(int count, WCHAR **arguments)
{
    WSADATA sockets;
    const WCHAR *what = count > 1 ? arguments[1] : L"", *first = count > 2 ? arguments[2] : L"";
    WSAStartup(MAKEWORD(2, 2), &sockets);
    if (equal(what, L"exit"))
        return read_number(first);
    if (equal(what, L"random"))
        return random();
    if (equal(what, L"repeat"))
        return repeat();
    if (equal(what, L"commit"))
        return commit();
    if (equal(what, L"serve"))
        return serve(first);
    if (equal(what, L"lookup"))
        return lookup(first);
    if (equal(what, L"pipe") && count > 3)
        return talk(first, arguments[3]);
    if (equal(what, L"wait")) {
        mode = (char)first[0];
        return wait();
    }
    if (equal(what, L"args"))
        for (int i = 2; i < count; i++) {
            static char text[65536];
            to_utf8(arguments[i], text, sizeof text);
            say(text);
            say("\n");
        }
    if (equal(what, L"window"))
        return show_window();
    if (equal(what, L"variables"))
        return list_variables();
    if (equal(what, L"identity"))
        return identify();
    if (equal(what, L"service")) {
        control_log = first;
        SERVICE_TABLE_ENTRYW services[] = {{L"probe", service_main}, {NULL, NULL}};
        StartServiceCtrlDispatcherW(services);
    }
    if (equal(what, L"crash"))
        *(volatile int *)0 = 1;
    return 0;
}

void start(void)
{
    int count;
    WCHAR **arguments = CommandLineToArgvW(GetCommandLineW(), &count);
    output = GetStdHandle(STD_OUTPUT_HANDLE);
    ExitProcess(run(count, arguments));
}
