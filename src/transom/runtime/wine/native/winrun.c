/* winrun PATH: run one Win32 command line in a container, as the container execution service of Windows does.
 *
 * PATH is an absolute Unix path without spaces. PATH.job contains what to run, as fields in UTF-8 that end with a NUL:
 * the working directory, the command line, and NAME=value for each variable of the whole environment.
 * PATH.status gets "image NAME" (of the program) and "pid N" when the process exists and "exit N" (all 32 bits) after it has ended, or "error N" (Win32's)
 * when it could not be created.
 *
 * Programs expect real Win32 pipes as standard handles, which Unix pipes under Wine are not: they are relayed here.
 * The job "main" is a container's own: when it ends, services are notified while Wine still runs for this process.
 * A terminal is left to the program itself. If this process is killed, its child goes with it; if the child ends by
 * itself, the processes that it started keep running.
 */
#include <windows.h>

#include "services.h"

#define SHUTDOWN_MS 5000 /* for services, unless the registry says otherwise */
#define CANNOT_RUN 128
#define NO_SUCH_PROGRAM 9009 /* of a shell */
#define LAST_OUTPUT_MS 1000 /* for relaying the last output, when another process keeps the pipe open */

struct relay {
    HANDLE from, to;
    BOOL close; /* close `to` at the end of `from` */
};

static DWORD WINAPI relay(void *argument)
{
    struct relay *r = argument;
    static const DWORD size = 32768;
    char *buffer = HeapAlloc(GetProcessHeap(), 0, size);
    DWORD got, put;

    while (buffer && ReadFile(r->from, buffer, size, &got, NULL) && got) {
        for (DWORD done = 0; done < got; done += put) {
            if (!WriteFile(r->to, buffer + done, got - done, &put, NULL)) {
                CloseHandle(r->from); /* so that the writer gets an error: there is no reader */
                return 0;
            }
        }
    }
    if (r->close)
        CloseHandle(r->to);
    return 0;
}

/* A pipe of which a child inherits one end. */
static void make_pipe(HANDLE *childs, HANDLE *ours, BOOL child_reads)
{
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
    HANDLE reading = NULL, writing = NULL;

    CreatePipe(&reading, &writing, &inherited, 65536);
    *childs = child_reads ? reading : writing;
    *ours = child_reads ? writing : reading;
    SetHandleInformation(*ours, HANDLE_FLAG_INHERIT, 0);
}

static BOOL WINAPI ignore(DWORD event)
{
    (void)event;
    return TRUE;
}

static void report(HANDLE file, const char *word, DWORD number)
{
    char text[32], digits[10];
    DWORD length = 0, count = 0, written;

    while (*word)
        text[length++] = *word++;
    text[length++] = ' ';
    do
        digits[count++] = '0' + number % 10;
    while (number /= 10);
    while (count)
        text[length++] = digits[--count];
    text[length++] = '\n';
    WriteFile(file, text, length, &written, NULL);
}

/* The name of the program in the command line, which is the name of the Linux process: init finds it by that name. */
static void report_name(HANDLE file, const WCHAR *command)
{
    char text[3 * MAX_PATH + 16] = "image ";
    BOOL quoted = *command == L'"';
    const WCHAR *name = command + quoted, *end = name;
    DWORD written;

    for (; *end && (quoted ? *end != L'"' : *end != L' ' && *end != L'\t') && end - name < MAX_PATH; end++)
        if (*end == L'\\')
            name = end + 1;
    int size = WideCharToMultiByte(CP_UTF8, 0, name, (int)(end - name), text + 6, sizeof text - 8, NULL, NULL);
    text[6 + size] = '\n';
    WriteFile(file, text, (DWORD)size + 7, &written, NULL);
}

/* \\?\unix\PATH is how a Unix path is written, whatever drives there are. */
static void unix_name(WCHAR *name, const WCHAR *path, const WCHAR *extension)
{
    lstrcpyW(name, L"\\\\?\\unix");
    WCHAR *end = name + lstrlenW(name);
    for (; *path && end < name + MAX_PATH; path++)
        *end++ = *path == L'/' ? L'\\' : *path;
    *end = 0;
    lstrcatW(name, extension);
}

/* The fields of a job, each ended by a NUL, with another one at the end. */
static WCHAR *read_job(const WCHAR *path)
{
    WCHAR name[MAX_PATH + 16];
    unix_name(name, path, L".job");
    HANDLE file = CreateFileW(name, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
    if (file == INVALID_HANDLE_VALUE)
        return NULL;
    DWORD size = GetFileSize(file, NULL), got = 0;
    char *bytes = HeapAlloc(GetProcessHeap(), 0, size + 1);
    WCHAR *fields = HeapAlloc(GetProcessHeap(), HEAP_ZERO_MEMORY, (size + 2) * sizeof(WCHAR));
    if (!bytes || !fields || !ReadFile(file, bytes, size, &got, NULL) || got != size)
        return NULL;
    CloseHandle(file);
    MultiByteToWideChar(CP_UTF8, 0, bytes, size, fields, size);
    HeapFree(GetProcessHeap(), 0, bytes);
    return fields;
}

static WCHAR *next_field(WCHAR *field)
{
    return field + lstrlenW(field) + 1;
}

/* Also of this process: CreateProcess finds the program with our PATH. */
static void set_variable(WCHAR *variable)
{
    WCHAR *old = GetEnvironmentStringsW();
    for (WCHAR *o = old; *o; o = next_field(o)) {
        WCHAR name[MAX_PATH];
        int length = 0;
        while (o[length] && o[length] != L'=' && length < MAX_PATH - 1) {
            name[length] = o[length];
            length++;
        }
        name[length] = 0;
        if (length)
            SetEnvironmentVariableW(name, NULL);
    }
    FreeEnvironmentStringsW(old);
    for (; *variable; variable = next_field(variable)) {
        WCHAR *equals = variable + 1;
        while (*equals && *equals != L'=')
            equals++;
        if (*equals) {
            *equals = 0;
            SetEnvironmentVariableW(variable, equals + 1);
            *equals = L'=';
            variable = equals;
        }
    }
}

/* Windows' shell ends with 1 when it has found no program, which is 9009 inside of it; Wine's ends with that, too. */
static BOOL is_shell(const WCHAR *command)
{
    BOOL quoted = *command == L'"';
    const WCHAR *name = command + quoted, *end = name;
    for (; *end && (quoted ? *end != L'"' : *end != L' ' && *end != L'\t'); end++)
        if (*end == L'\\' || *end == L'/')
            name = end + 1;
    return (end - name == 3 || end - name == 7) && CompareStringOrdinal(name, (int)(end - name), L"cmd.exe", (int)(end - name), TRUE) == CSTR_EQUAL;
}

static BOOL is_main(const WCHAR *path)
{
    int length = lstrlenW(path);
    return length > 5 && lstrcmpW(path + length - 5, L"/main") == 0;
}

static void end_services(void)
{
    static struct shutdown shutdown;
    if (!services_run())
        return;
    shutdown.milliseconds = registry_timeout(SHUTDOWN_MS);
    find_services(&shutdown);
    shut_services_down(&shutdown);
}

static DWORD run(const WCHAR *path)
{
    WCHAR name[MAX_PATH + 16];
    WCHAR *directory = read_job(path);
    unix_name(name, path, L".status");
    HANDLE status = CreateFileW(name, GENERIC_WRITE, FILE_SHARE_READ, NULL, CREATE_ALWAYS, 0, NULL);
    if (!directory) {
        report(status, "error", ERROR_FILE_NOT_FOUND);
        return CANNOT_RUN;
    }
    WCHAR *command = next_field(directory);
    set_variable(next_field(command));
    if (*directory && !SetCurrentDirectoryW(directory)) { /* programs are searched there too */
        report(status, "error", ERROR_DIRECTORY);
        return CANNOT_RUN;
    }

    STARTUPINFOW start = {.cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES};
    PROCESS_INFORMATION child;
    HANDLE input = GetStdHandle(STD_INPUT_HANDLE), output = GetStdHandle(STD_OUTPUT_HANDLE), error = GetStdHandle(STD_ERROR_HANDLE);
    struct relay in = {input, NULL, TRUE}, out = {NULL, output, FALSE}, err = {NULL, error, FALSE};
    DWORD mode;
    BOOL terminal = GetConsoleMode(output, &mode);

    if (terminal) {
        start.hStdInput = input;
        start.hStdOutput = output;
        start.hStdError = error;
    } else {
        make_pipe(&start.hStdInput, &in.to, TRUE);
        make_pipe(&start.hStdOutput, &out.from, FALSE);
        make_pipe(&start.hStdError, &err.from, FALSE);
    }
    SetConsoleCtrlHandler(ignore, TRUE);
    SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX);

    if (!CreateProcessW(NULL, command, NULL, NULL, TRUE, CREATE_SUSPENDED, NULL, NULL, &start, &child)) {
        report(status, "error", GetLastError());
        return CANNOT_RUN;
    }
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE};
    HANDLE job = CreateJobObjectW(NULL, NULL);
    SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits);
    AssignProcessToJobObject(job, child.hProcess);
    report_name(status, command);
    report(status, "pid", child.dwProcessId);
    ResumeThread(child.hThread);

    HANDLE relays[2] = {NULL, NULL};
    if (!terminal) {
        CloseHandle(start.hStdInput);
        CloseHandle(start.hStdOutput);
        CloseHandle(start.hStdError);
        relays[0] = CreateThread(NULL, 0, relay, &out, 0, NULL);
        relays[1] = CreateThread(NULL, 0, relay, &err, 0, NULL);
        CreateThread(NULL, 0, relay, &in, 0, NULL);
    }
    DWORD code = CANNOT_RUN;
    WaitForSingleObject(child.hProcess, INFINITE);
    GetExitCodeProcess(child.hProcess, &code);
    if (code == NO_SUCH_PROGRAM && is_shell(command))
        code = 1;
    if (!terminal)
        WaitForMultipleObjects(2, relays, TRUE, LAST_OUTPUT_MS);
    limits.BasicLimitInformation.LimitFlags = 0;
    SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits);
    report(status, "exit", code);
    CloseHandle(status);
    if (is_main(path))
        end_services();
    return code;
}

void start(void)
{
    WCHAR *path = GetCommandLineW();
    for (WCHAR *c = path; *c; c++)
        if (*c == L' ' && c[1] && c[1] != L' ')
            path = c + 1;
    ExitProcess(run(path));
}
