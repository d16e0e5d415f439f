/* standin: the Win32 half of a program that Wine does not have (powershell.exe, findstr.exe), under the name of that program.
 *
 * The other half is a Unix process of the same container, /standin/start, which Wine can start as it starts any program. It
 * is given one end of a connection over the loopback as its standard input and output; Wine's sockets are real ones. This
 * half has what only a Win32 process has: the arguments, the environment, the console, the standard handles, children.
 *
 * Frames go both ways: length (4 bytes, little-endian, of what follows), a letter, its content. Numbers have 4 bytes, times
 * and sizes 8, texts are UTF-16 with a NUL at the end.
 *
 *  H  pid flags columns rows, command line, program, directory, variables, ""   first of all
 *  r  size ->  I  bytes, none at the end         standard input, on request, so that children find their input
 *  o, e  bytes                                               standard output and error
 *  s  number flags, command line, directory, variables, "" -> P number pid, or F number error; O number stream bytes for what
 *                      it writes, none at the end of a stream; X number code
 *  i  number bytes                                           for a child's input, none for its end
 *  l                   ->  L  pid parent handles memory started used name, ...
 *  v                   ->  V  error, state name shown, ...
 *  k  pid code         ->  K  error
 *                          C  event                          of the console
 *  x  code                                                   the end
 */
#include <winsock2.h>
#include <windows.h>
#include <psapi.h>
#include <tlhelp32.h>
#include <winsvc.h>

#define UNIX_HALF L"\\\\?\\unix\\standin\\start"
#define CANNOT_RUN 1
#define MOST_CHILDREN 64
#define BLOCK 32768
#define SERVICE_MANAGER_MS 30000
#define RETRY_MS 100

enum { CONSOLE_INPUT = 1, CONSOLE_OUTPUT = 2, CONSOLE_ERROR = 4 };
enum { OUTPUT_HERE = 1, ERROR_HERE = 2, INPUT_HERE = 4, ALONE = 8 };

struct child {
    DWORD number;
    HANDLE process, input, output, error;
};

static SOCKET channel;
static CRITICAL_SECTION sending, children_lock;
static struct child children[MOST_CHILDREN];
static HANDLE input, output, error, wanted; /* `wanted`: a read was requested */
static volatile DWORD wanted_size;
static BOOL console_input, console_output, console_error;

void *memcpy(void *to, const void *from, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((volatile char *)to)[i] = ((const char *)from)[i];
    return to;
}

void *memset(void *to, int value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((volatile char *)to)[i] = (char)value;
    return to;
}

/* Frames */

struct frame {
    char *bytes;
    DWORD size, room;
};

static void add(struct frame *f, const void *bytes, DWORD size)
{
    if (f->size + size > f->room) {
        f->room = (f->size + size) * 2;
        f->bytes = f->bytes ? HeapReAlloc(GetProcessHeap(), 0, f->bytes, f->room) : HeapAlloc(GetProcessHeap(), 0, f->room);
        if (!f->bytes)
            ExitProcess(CANNOT_RUN);
    }
    memcpy(f->bytes + f->size, bytes, size);
    f->size += size;
}

static void add_number(struct frame *f, DWORD number)
{
    add(f, &number, sizeof number);
}

static void add_text(struct frame *f, const WCHAR *text)
{
    add(f, text, (lstrlenW(text) + 1) * sizeof *text);
}

static void begin(struct frame *f, char letter)
{
    f->size = 0;
    add_number(f, 0);
    add(f, &letter, 1);
}

static void finish(struct frame *f)
{
    DWORD length = f->size - sizeof length;
    memcpy(f->bytes, &length, sizeof length);
    EnterCriticalSection(&sending);
    for (DWORD done = 0; done < f->size;) {
        int put = send(channel, f->bytes + done, (int)(f->size - done), 0);
        if (put <= 0)
            break;
        done += put;
    }
    LeaveCriticalSection(&sending);
    f->size = 0;
}

static void release(struct frame *f)
{
    if (f->bytes)
        HeapFree(GetProcessHeap(), 0, f->bytes);
}

static void send_frame(char letter, DWORD one, const DWORD *two)
{
    struct frame f = {0};
    begin(&f, letter);
    add_number(&f, one);
    if (two)
        add_number(&f, *two);
    finish(&f);
    release(&f);
}

/* Standard handles */

static void print_error(const char *text)
{
    DWORD put;
    WriteFile(GetStdHandle(STD_ERROR_HANDLE), text, lstrlenA(text), &put, NULL);
}

static void write_out(HANDLE to, BOOL console, const char *bytes, DWORD size)
{
    DWORD put;
    if (console) {
        WCHAR *text = HeapAlloc(GetProcessHeap(), 0, (size + 1) * sizeof *text);
        int length = MultiByteToWideChar(CP_UTF8, 0, bytes, (int)size, text, (int)size);
        for (int done = 0; done < length; done += (int)put)
            if (!WriteConsoleW(to, text + done, (DWORD)(length - done), &put, NULL) || !put)
                break;
        HeapFree(GetProcessHeap(), 0, text);
        return;
    }
    for (DWORD done = 0; done < size; done += put)
        if (!WriteFile(to, bytes + done, size - done, &put, NULL))
            break;
}

static DWORD WINAPI read_input(void *unused)
{
    static WCHAR text[BLOCK / 4];
    static char bytes[BLOCK];
    struct frame f = {0};
    (void)unused;

    while (WaitForSingleObject(wanted, INFINITE) == WAIT_OBJECT_0) {
        DWORD got = 0, size = wanted_size < BLOCK ? wanted_size : BLOCK;
        if (console_input) {
            SetLastError(0);
            if (!ReadConsoleW(input, text, BLOCK / 4, &got, NULL))
                got = 0;
            if (!got && GetLastError() == ERROR_OPERATION_ABORTED) { /* CTRL+C: the line is discarded */
                text[0] = L'\n';
                got = 1;
            }
            if (got && text[0] == 26) /* CTRL+Z */
                got = 0;
            got = (DWORD)WideCharToMultiByte(CP_UTF8, 0, text, (int)got, bytes, BLOCK, NULL, NULL);
        } else if (!ReadFile(input, bytes, size, &got, NULL)) {
            got = 0;
        }
        begin(&f, 'I');
        add(&f, bytes, got);
        finish(&f);
    }
    return 0;
}

static BOOL WINAPI on_event(DWORD event)
{
    if (event > CTRL_BREAK_EVENT)
        return FALSE; /* exits, like every program without a handler */
    send_frame('C', event, NULL);
    return TRUE;
}

/* Children */

static const WCHAR *next_text(const WCHAR *text)
{
    return text + lstrlenW(text) + 1;
}

static struct child *child_of(DWORD number)
{
    for (int i = 0; i < MOST_CHILDREN; i++)
        if (children[i].process && children[i].number == number)
            return &children[i];
    return NULL;
}

static void make_pipe(HANDLE *childs, HANDLE *ours, BOOL child_reads)
{
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
    HANDLE reading = NULL, writing = NULL;
    CreatePipe(&reading, &writing, &inherited, 65536);
    *childs = child_reads ? reading : writing;
    *ours = child_reads ? writing : reading;
    SetHandleInformation(*ours, HANDLE_FLAG_INHERIT, 0);
}

struct stream {
    DWORD number;
    char which;
    HANDLE from;
};

/* Relays what a child writes, as fast as the other half reads it. */
static DWORD WINAPI relay(void *argument)
{
    struct stream *s = argument;
    struct frame f = {0};
    char *buffer = HeapAlloc(GetProcessHeap(), 0, BLOCK);
    DWORD got;
    do {
        if (!buffer || !ReadFile(s->from, buffer, BLOCK, &got, NULL))
            got = 0;
        begin(&f, 'O');
        add_number(&f, s->number);
        add(&f, &s->which, 1);
        add(&f, buffer, got);
        finish(&f);
    } while (got);
    CloseHandle(s->from);
    release(&f);
    return 0;
}

static DWORD WINAPI wait_for(void *argument)
{
    struct child *c = argument;
    DWORD code = CANNOT_RUN;
    WaitForSingleObject(c->process, INFINITE);
    GetExitCodeProcess(c->process, &code);
    send_frame('X', c->number, &code);
    EnterCriticalSection(&children_lock);
    CloseHandle(c->process);
    if (c->input)
        CloseHandle(c->input);
    c->process = c->input = NULL;
    LeaveCriticalSection(&children_lock);
    return 0;
}

static HANDLE relay_from(DWORD number, char which, HANDLE from)
{
    struct stream *s = HeapAlloc(GetProcessHeap(), 0, sizeof *s);
    *s = (struct stream){number, which, from};
    return CreateThread(NULL, 0, relay, s, 0, NULL);
}

static void start_child(DWORD number, DWORD flags, const WCHAR *command)
{
    const WCHAR *directory = next_text(command), *environment = next_text(directory);
    STARTUPINFOW start = {.cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES};
    PROCESS_INFORMATION made;
    HANDLE our_output = NULL, our_error = NULL, our_input = NULL;
    DWORD problem = 0;
    int length = lstrlenW(command) + 1;
    WCHAR *line = HeapAlloc(GetProcessHeap(), 0, length * sizeof *line); /* CreateProcess may write there */
    memcpy(line, command, length * sizeof *line);

    start.hStdInput = input;
    start.hStdOutput = output;
    start.hStdError = error;
    if (flags & INPUT_HERE)
        make_pipe(&start.hStdInput, &our_input, TRUE);
    if (flags & OUTPUT_HERE)
        make_pipe(&start.hStdOutput, &our_output, FALSE);
    if (flags & ERROR_HERE)
        make_pipe(&start.hStdError, &our_error, FALSE);
    struct child *c = NULL;
    EnterCriticalSection(&children_lock);
    for (int i = 0; i < MOST_CHILDREN && !c; i++)
        if (!children[i].process)
            c = &children[i];
    if (!c)
        problem = ERROR_MAX_THRDS_REACHED;
    else if (!CreateProcessW(NULL, line, NULL, NULL, TRUE, CREATE_UNICODE_ENVIRONMENT, (void *)environment,
                             *directory ? directory : NULL, &start, &made))
        problem = GetLastError();
    else
        *c = (struct child){number, made.hProcess, our_input, our_output, our_error};
    LeaveCriticalSection(&children_lock);
    HeapFree(GetProcessHeap(), 0, line);
    if (flags & INPUT_HERE)
        CloseHandle(start.hStdInput);
    if (flags & OUTPUT_HERE)
        CloseHandle(start.hStdOutput);
    if (flags & ERROR_HERE)
        CloseHandle(start.hStdError);
    if (problem) {
        send_frame('F', number, &problem);
        return;
    }
    CloseHandle(made.hThread);
    send_frame('P', number, &made.dwProcessId);
    if (flags & OUTPUT_HERE)
        CloseHandle(relay_from(number, 1, our_output));
    if (flags & ERROR_HERE)
        CloseHandle(relay_from(number, 2, our_error));
    CloseHandle(CreateThread(NULL, 0, wait_for, c, 0, NULL));
}

static void feed_child(DWORD number, const char *bytes, DWORD size)
{
    EnterCriticalSection(&children_lock);
    struct child *c = child_of(number);
    HANDLE to = c ? c->input : NULL;
    if (c && !size)
        c->input = NULL;
    LeaveCriticalSection(&children_lock);
    if (!to)
        return;
    if (size)
        write_out(to, FALSE, bytes, size);
    else
        CloseHandle(to);
}

/* Processes and services */

static void add_time(struct frame *f, const FILETIME *time)
{
    add_number(f, time->dwLowDateTime);
    add_number(f, time->dwHighDateTime);
}

static void list_processes(void)
{
    struct frame f = {0};
    PROCESSENTRY32W entry = {.dwSize = sizeof entry};
    HANDLE list = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
    begin(&f, 'L');
    for (BOOL there = Process32FirstW(list, &entry); there; there = Process32NextW(list, &entry)) {
        FILETIME started = {0}, ended, kernel = {0}, user = {0};
        PROCESS_MEMORY_COUNTERS memory = {.cb = sizeof memory};
        DWORD handles = 0, used[2];
        HANDLE process = OpenProcess(PROCESS_QUERY_INFORMATION | PROCESS_VM_READ, FALSE, entry.th32ProcessID);
        if (process) {
            GetProcessTimes(process, &started, &ended, &kernel, &user);
            GetProcessHandleCount(process, &handles);
            K32GetProcessMemoryInfo(process, &memory, sizeof memory);
            CloseHandle(process);
        }
        ULONGLONG sum = ((ULONGLONG)kernel.dwHighDateTime << 32 | kernel.dwLowDateTime)
                        + ((ULONGLONG)user.dwHighDateTime << 32 | user.dwLowDateTime);
        used[0] = (DWORD)sum;
        used[1] = (DWORD)(sum >> 32);
        add_number(&f, entry.th32ProcessID);
        add_number(&f, entry.th32ParentProcessID);
        add_number(&f, handles);
        add_number(&f, (DWORD)memory.WorkingSetSize);
        add_number(&f, (DWORD)((ULONGLONG)memory.WorkingSetSize >> 32));
        add_time(&f, &started);
        add(&f, used, sizeof used);
        add_text(&f, entry.szExeFile);
    }
    CloseHandle(list);
    finish(&f);
    release(&f);
}

/* The service manager may be busy, or still starting: as a client on Windows does during boot, wait for it. */
static SC_HANDLE open_service_manager(void)
{
    for (ULONGLONG deadline = GetTickCount64() + SERVICE_MANAGER_MS;; Sleep(RETRY_MS)) {
        SC_HANDLE manager = OpenSCManagerW(NULL, NULL, SC_MANAGER_ENUMERATE_SERVICE);
        if (manager || GetLastError() == ERROR_ACCESS_DENIED || GetTickCount64() >= deadline)
            return manager;
    }
}

static void list_services(void)
{
    struct frame f = {0};
    DWORD size = 0, count = 0, problem = 0;
    BYTE *buffer = NULL;
    SC_HANDLE manager = open_service_manager();
    if (!manager)
        problem = GetLastError();
    while (!problem) { /* until the buffer is large enough: the number of services changes */
        DWORD more = 0;
        if (EnumServicesStatusExW(manager, SC_ENUM_PROCESS_INFO, SERVICE_WIN32, SERVICE_STATE_ALL, buffer, size, &more, &count,
                                  NULL, NULL))
            break;
        problem = GetLastError();
        if (problem != ERROR_MORE_DATA)
            break;
        problem = 0;
        size += more + BLOCK;
        if (buffer)
            HeapFree(GetProcessHeap(), 0, buffer);
        buffer = HeapAlloc(GetProcessHeap(), 0, size);
        if (!buffer)
            problem = ERROR_NOT_ENOUGH_MEMORY;
    }
    begin(&f, 'V');
    add_number(&f, problem);
    ENUM_SERVICE_STATUS_PROCESSW *services = (ENUM_SERVICE_STATUS_PROCESSW *)buffer;
    for (DWORD i = 0; !problem && i < count; i++) {
        add_number(&f, services[i].ServiceStatusProcess.dwCurrentState);
        add_text(&f, services[i].lpServiceName);
        add_text(&f, services[i].lpDisplayName ? services[i].lpDisplayName : services[i].lpServiceName);
    }
    if (buffer)
        HeapFree(GetProcessHeap(), 0, buffer);
    if (manager)
        CloseServiceHandle(manager);
    finish(&f);
    release(&f);
}

static void end_process(DWORD pid, DWORD code)
{
    DWORD problem = 0;
    HANDLE process = OpenProcess(PROCESS_TERMINATE, FALSE, pid);
    if (!process || !TerminateProcess(process, code))
        problem = GetLastError();
    if (process)
        CloseHandle(process);
    send_frame('K', problem, NULL);
}

/* The other half */

/* Both ends of a connection, or FALSE. Another process may connect in between: only our own connection counts. */
static BOOL connected(SOCKET *theirs)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, own, caller;
    int size = sizeof address, one = 1;
    SOCKET listener = WSASocketW(AF_INET, SOCK_STREAM, IPPROTO_TCP, NULL, 0, WSA_FLAG_OVERLAPPED);
    channel = WSASocketW(AF_INET, SOCK_STREAM, IPPROTO_TCP, NULL, 0, WSA_FLAG_OVERLAPPED);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4)
        || getsockname(listener, (struct sockaddr *)&address, &size) || connect(channel, (struct sockaddr *)&address, size)
        || getsockname(channel, (struct sockaddr *)&own, &size))
        return FALSE;
    do {
        *theirs = accept(listener, (struct sockaddr *)&caller, &size);
        if (*theirs == INVALID_SOCKET)
            return FALSE;
        if (caller.sin_port == own.sin_port && caller.sin_addr.s_addr == own.sin_addr.s_addr)
            break;
        closesocket(*theirs);
    } while (1);
    closesocket(listener);
    setsockopt(channel, IPPROTO_TCP, TCP_NODELAY, (char *)&one, sizeof one);
    setsockopt(*theirs, IPPROTO_TCP, TCP_NODELAY, (char *)&one, sizeof one);
    SetHandleInformation((HANDLE)channel, HANDLE_FLAG_INHERIT, 0);
    return TRUE;
}

static BOOL start_other_half(void)
{
    STARTUPINFOW start = {.cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES};
    PROCESS_INFORMATION made;
    WCHAR line[] = L"standin", environment[] = L"LANG=C.UTF-8\0";
    SOCKET theirs;
    WSADATA data;
    if (WSAStartup(MAKEWORD(2, 2), &data) || !connected(&theirs))
        return FALSE;
    start.hStdInput = start.hStdOutput = start.hStdError = (HANDLE)theirs;
    BOOL there = CreateProcessW(UNIX_HALF, line, NULL, NULL, TRUE, CREATE_UNICODE_ENVIRONMENT, environment, NULL, &start, &made);
    closesocket(theirs);
    return there;
}

static void greet(void)
{
    struct frame f = {0};
    CONSOLE_SCREEN_BUFFER_INFO screen;
    WCHAR path[MAX_PATH];
    BOOL sized = console_output && GetConsoleScreenBufferInfo(output, &screen);
    begin(&f, 'H');
    add_number(&f, GetCurrentProcessId());
    add_number(&f, (console_input ? CONSOLE_INPUT : 0) | (console_output ? CONSOLE_OUTPUT : 0) | (console_error ? CONSOLE_ERROR : 0));
    add_number(&f, sized ? (DWORD)(screen.srWindow.Right - screen.srWindow.Left + 1) : 120);
    add_number(&f, sized ? (DWORD)(screen.srWindow.Bottom - screen.srWindow.Top + 1) : 30);
    add_text(&f, GetCommandLineW());
    path[GetModuleFileNameW(NULL, path, MAX_PATH - 1)] = 0;
    add_text(&f, path);
    path[GetCurrentDirectoryW(MAX_PATH - 1, path)] = 0;
    add_text(&f, path);
    WCHAR *block = GetEnvironmentStringsW();
    for (const WCHAR *v = block; *v; v = next_text(v))
        add_text(&f, v);
    add_text(&f, L"");
    finish(&f);
    release(&f);
}

static BOOL receive(void *buffer, DWORD size)
{
    for (DWORD done = 0; done < size;) {
        int got = recv(channel, (char *)buffer + done, (int)(size - done), 0);
        if (got <= 0)
            return FALSE;
        done += got;
    }
    return TRUE;
}

static void act(char letter, const char *content, DWORD size)
{
    const DWORD *numbers = (const DWORD *)content;
    switch (letter) {
    case 'o': write_out(output, console_output, content, size); break;
    case 'e': write_out(error, console_error, content, size); break;
    case 'r':
        wanted_size = numbers[0];
        SetEvent(wanted);
        break;
    case 's': start_child(numbers[0], numbers[1], (const WCHAR *)(content + 8)); break;
    case 'i': feed_child(numbers[0], content + 4, size - 4); break;
    case 'l': list_processes(); break;
    case 'v': list_services(); break;
    case 'k': end_process(numbers[0], numbers[1]); break;
    case 'x': ExitProcess(numbers[0]);
    }
}

void start(void)
{
    DWORD mode, length;
    char *frame = NULL;
    input = GetStdHandle(STD_INPUT_HANDLE);
    output = GetStdHandle(STD_OUTPUT_HANDLE);
    error = GetStdHandle(STD_ERROR_HANDLE);
    console_input = GetConsoleMode(input, &mode);
    console_output = GetConsoleMode(output, &mode);
    console_error = GetConsoleMode(error, &mode);
    InitializeCriticalSection(&sending);
    InitializeCriticalSection(&children_lock);
    wanted = CreateEventW(NULL, FALSE, FALSE, NULL);
    if (!start_other_half()) {
        print_error("This program is not part of Wine, and what stands in for it could not be started.\r\n");
        ExitProcess(CANNOT_RUN);
    }
    SetConsoleCtrlHandler(on_event, TRUE);
    greet();
    CloseHandle(CreateThread(NULL, 0, read_input, NULL, 0, NULL));
    while (receive(&length, sizeof length) && length) {
        /* Numbers are read where they are: the letter is put in front of an aligned place. */
        frame = frame ? HeapReAlloc(GetProcessHeap(), 0, frame, length + 18) : HeapAlloc(GetProcessHeap(), 0, length + 18);
        if (!frame || !receive(frame + 15, length))
            break;
        memset(frame + 15 + length, 0, 2);
        act(frame[15], frame + 16, length - 1);
    }
    print_error("What stands in for this program has ended without a word.\r\n");
    ExitProcess(CANNOT_RUN);
}
