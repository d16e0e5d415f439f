/* winctrl EVENT PID MILLISECONDS [STATUS]: send a console control event to a process and to all that it has started.
 *
 * EVENT: 0 CTRL_C, 1 CTRL_BREAK, 2 CTRL_CLOSE, 5 CTRL_LOGOFF, 6 CTRL_SHUTDOWN. Wine has no session manager that would send
 * the last three, so the routine that calls a process's handlers is started in it from outside. As on Windows, the
 * youngest process is notified first, and the next one when it has ended or its time is over; for CLOSE, LOGOFF and SHUTDOWN
 * a process ends when its handler returns, and a process whose handlers all decline ends with
 * STATUS_CONTROL_C_EXIT (0 in Wine). Windows of a process get WM_CLOSE, and a program without a console nothing else.
 *
 * CTRL_SHUTDOWN also notifies all services. The registry's WaitToKillServiceTimeout replaces MILLISECONDS; the value that is used is
 * written to the file STATUS, if there is one, as "timeout N".
 */
#include <windows.h>
#include <tlhelp32.h>
#include <winternl.h>

#include "services.h"

#define MOST 512
#define WINDOWS_MS 1000 /* for windows to be closed, before the process or its desktop are ended in another way */
#define MOMENT_MS 200 /* for a process that is just ending, or was waiting for one which has just ended */

static DWORD number(WCHAR **text)
{
    DWORD value = 0;
    while (**text == L' ')
        ++*text;
    for (; **text >= L'0' && **text <= L'9'; ++*text)
        value = value * 10 + (**text - L'0');
    return value;
}

/* The process and those it has started, each after its parent. */
static int family(DWORD pid, DWORD *found)
{
    static PROCESSENTRY32W all[MOST];
    int count = 0, known = 1;
    HANDLE list = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);

    for (all[0].dwSize = sizeof all[0]; count < MOST - 1; all[count].dwSize = sizeof all[0]) {
        if (!(count ? Process32NextW(list, &all[count]) : Process32FirstW(list, &all[count])))
            break;
        count++;
    }
    CloseHandle(list);
    found[0] = pid;
    for (int f = 0; f < known; f++)
        for (int i = 0; i < count; i++)
            if (all[i].th32ParentProcessID == found[f] && all[i].th32ProcessID != found[f] && known < MOST)
                found[known++] = all[i].th32ProcessID;
    return known;
}

/* An element of the list of handlers that kernelbase keeps in each process. The last one is kernelbase's own. */
struct handler {
    void *function, *next;
};

static BOOL WINAPI mark(DWORD event)
{
    (void)event;
    return TRUE;
}

static BOOL readable(const void *address)
{
    MEMORY_BASIC_INFORMATION about;
    return VirtualQuery(address, &about, sizeof about) && about.State == MEM_COMMIT && !(about.Protect & PAGE_NOACCESS);
}

/* Where kernelbase keeps the head of that list: the variable that points to a handler which we add here ourselves. */
static void *list_address(void)
{
    char *base = (char *)GetModuleHandleW(L"kernelbase.dll");
    IMAGE_NT_HEADERS *headers = (IMAGE_NT_HEADERS *)(base + ((IMAGE_DOS_HEADER *)base)->e_lfanew);
    IMAGE_SECTION_HEADER *section = IMAGE_FIRST_SECTION(headers);
    void *found = NULL;

    SetConsoleCtrlHandler(mark, TRUE);
    for (int i = 0; i < headers->FileHeader.NumberOfSections && !found; i++, section++) {
        if (!(section->Characteristics & IMAGE_SCN_MEM_WRITE))
            continue;
        struct handler **word = (struct handler **)(base + section->VirtualAddress);
        struct handler **end = (struct handler **)((char *)word + section->Misc.VirtualSize);
        for (; word < end && !found; word++)
            if ((ULONG_PTR)*word > 0xFFFF && readable(*word) && readable(*word + 1) && (*word)->function == (void *)mark)
                found = word;
    }
    SetConsoleCtrlHandler(mark, FALSE);
    return found;
}

/* The exit code of a process that handles nothing: another function takes the place of kernelbase's own handler. */
static void decline_as_windows(HANDLE process)
{
    unsigned char code[] = {
        0x48, 0x83, 0xEC, 0x28,                         /* sub rsp, 40 */
        0xB9, 0x3A, 0x01, 0x00, 0xC0,                   /* mov ecx, STATUS_CONTROL_C_EXIT */
        0x48, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xD0, /* mov rax, ...; call rax */
    };
    static const int operand = 11;
    void *list = list_address(), *exit = (void *)GetProcAddress(GetModuleHandleW(L"ntdll.dll"), "RtlExitUserProcess");
    void *address = NULL, *function;
    struct handler element = {NULL, NULL};

    if (!list || !exit || !ReadProcessMemory(process, list, &element.next, sizeof element.next, NULL))
        return;
    for (int i = 0; i < MOST && element.next; i++) {
        address = element.next;
        if (!ReadProcessMemory(process, address, &element, sizeof element, NULL))
            return;
    }
    function = VirtualAllocEx(process, NULL, sizeof code, MEM_COMMIT | MEM_RESERVE, PAGE_EXECUTE_READWRITE);
    for (unsigned i = 0; i < sizeof exit; i++)
        code[operand + i] = (unsigned char)((ULONG_PTR)exit >> 8 * i);
    if (address && function && WriteProcessMemory(process, function, code, sizeof code, NULL))
        WriteProcessMemory(process, address, &function, sizeof function, NULL);
}


/* ---- windows */

/* Of user32, which only programs with windows need. */
static struct {
    DWORD (WINAPI *window_process)(HWND, DWORD *);
    LONG_PTR (WINAPI *window_value)(HWND, int);
    HWND (WINAPI *ancestor)(HWND, UINT);
    int (WINAPI *class_name)(HWND, WCHAR *, int);
    BOOL (WINAPI *post_message)(HWND, UINT, WPARAM, LPARAM);
} user;

static BOOL has_user_library(DWORD pid)
{
    MODULEENTRY32W module = {.dwSize = sizeof module};
    HANDLE list = CreateToolhelp32Snapshot(TH32CS_SNAPMODULE, pid);
    BOOL found = FALSE;
    for (BOOL more = Module32FirstW(list, &module); more && !found; more = Module32NextW(list, &module))
        found = lstrcmpiW(module.szModule, L"user32.dll") == 0;
    CloseHandle(list);
    return found;
}

/* Only if one of the processes can have windows: loading the library takes longer than all the rest. */
static void load_user_functions(const DWORD *members, int count)
{
    HMODULE library = NULL;
    for (int i = 0; i < count && !library; i++)
        if (has_user_library(members[i]))
            library = LoadLibraryW(L"user32.dll");
    if (!library)
        return;
    user.window_value = (void *)GetProcAddress(library, "GetWindowLongPtrW");
    user.ancestor = (void *)GetProcAddress(library, "GetAncestor");
    user.class_name = (void *)GetProcAddress(library, "GetClassNameW");
    user.post_message = (void *)GetProcAddress(library, "PostMessageW");
    user.window_process = (void *)GetProcAddress(library, "GetWindowThreadProcessId");
}

static BOOL has_class(HWND window, const WCHAR *wanted)
{
    WCHAR name[64] = L"";
    return user.class_name(window, name, sizeof name / sizeof *name) && lstrcmpiW(name, wanted) == 0;
}

/* How many top-level windows of a process have been asked to close. EnumWindows needs Wine's desktop, which comes and goes in
 * a system without a display and takes the list with it; the windows themselves stay. So their handles are tried. */
static int close_windows(DWORD pid)
{
    static const ULONG_PTR first = 0x20, last = 0x2000;
    int count = 0;
    for (ULONG_PTR handle = first; user.window_process && handle < last; handle += 2) {
        HWND window = (HWND)handle;
        DWORD owner = 0;
        if (!user.window_process(window, &owner) || owner != pid)
            continue;
        LONG_PTR style = user.window_value(window, GWL_STYLE);
        if ((style & WS_CHILD) || !(style & (WS_VISIBLE | WS_CAPTION)) || has_class(window, L"IME")
            || has_class(user.ancestor(window, GA_PARENT), L"Message"))
            continue;
        if (user.post_message(window, WM_CLOSE, 0, 0))
            count++;
    }
    return count;
}

static BOOL has_console(HANDLE process)
{
    PROCESS_BASIC_INFORMATION about;
    BYTE *image = NULL;
    DWORD header = 0;
    WORD subsystem = IMAGE_SUBSYSTEM_WINDOWS_CUI;
    static const int image_base = 0x10; /* of the PEB */

    if (NtQueryInformationProcess(process, ProcessBasicInformation, &about, sizeof about, NULL) == 0
        && ReadProcessMemory(process, (BYTE *)about.PebBaseAddress + image_base, &image, sizeof image, NULL)
        && ReadProcessMemory(process, image + FIELD_OFFSET(IMAGE_DOS_HEADER, e_lfanew), &header, sizeof header, NULL))
        ReadProcessMemory(process, image + header + FIELD_OFFSET(IMAGE_NT_HEADERS64, OptionalHeader.Subsystem), &subsystem,
                          sizeof subsystem, NULL);
    return subsystem != IMAGE_SUBSYSTEM_WINDOWS_GUI;
}

/* ---- time */

static void report_timeout(const WCHAR *path, DWORD milliseconds)
{
    WCHAR name[MAX_PATH] = L"\\\\?\\unix", *end = name + lstrlenW(name);
    char text[32] = "timeout ", digits[10];
    DWORD length = 8, count = 0, written;
    for (; *path && end < name + MAX_PATH - 1; path++)
        *end++ = *path == L'/' ? L'\\' : *path;
    *end = 0;
    do
        digits[count++] = '0' + milliseconds % 10;
    while (milliseconds /= 10);
    while (count)
        text[length++] = digits[--count];
    text[length++] = '\n';
    HANDLE file = CreateFileW(name, GENERIC_WRITE, FILE_SHARE_READ, NULL, CREATE_ALWAYS, 0, NULL);
    WriteFile(file, text, length, &written, NULL);
    CloseHandle(file);
}

static BOOL send_control_event(DWORD pid, DWORD event, DWORD milliseconds, BOOL first)
{
    /* kernelbase is at the same address in all processes */
    void *routine = (void *)GetProcAddress(GetModuleHandleW(L"kernelbase.dll"), "CtrlRoutine");
    HANDLE process = OpenProcess(PROCESS_ALL_ACCESS, FALSE, pid);
    if (!process || !routine)
        return FALSE;
    if (!first && event > CTRL_BREAK_EVENT && WaitForSingleObject(process, MOMENT_MS) == WAIT_OBJECT_0)
        return TRUE;
    if (event > CTRL_BREAK_EVENT && close_windows(pid)) {
        BOOL console = has_console(process);
        if (WaitForSingleObject(process, console ? WINDOWS_MS : milliseconds) == WAIT_OBJECT_0 || !console) {
            CloseHandle(process);
            return TRUE;
        }
    }
    decline_as_windows(process);
    HANDLE thread = CreateRemoteThread(process, NULL, 0, (LPTHREAD_START_ROUTINE)routine, (void *)(ULONG_PTR)event, 0, NULL);
    if (!thread)
        return FALSE;
    if (event > CTRL_BREAK_EVENT) {
        HANDLE either[2] = {process, thread};
        if (WaitForMultipleObjects(2, either, FALSE, milliseconds) == WAIT_OBJECT_0 + 1
            && WaitForSingleObject(process, MOMENT_MS) == WAIT_TIMEOUT)
            TerminateProcess(process, CONTROL_C_EXIT);
    }
    CloseHandle(thread);
    CloseHandle(process);
    return TRUE;
}

/* Members with windows get a head start, because the desktop ends with the services. */
static void close_all_windows(const DWORD *members, int count)
{
    for (int i = 0; i < count; i++) {
        HANDLE process = OpenProcess(PROCESS_ALL_ACCESS, FALSE, members[i]);
        if (process && close_windows(members[i]))
            WaitForSingleObject(process, WINDOWS_MS);
        if (process)
            CloseHandle(process);
    }
}

void start(void)
{
    static DWORD members[MOST];
    static struct shutdown shutdown;
    WCHAR *text = GetCommandLineW();
    if (*text == L'"')
        for (text++; *text && *text != L'"'; text++)
            ;
    while (*text && *text != L' ')
        text++;
    DWORD event = number(&text), pid = number(&text), milliseconds = number(&text);
    while (*text == L' ')
        text++;
    HANDLE services = NULL;
    BOOL sent = FALSE;
    int count = family(pid, members);

    if (event == CTRL_SHUTDOWN_EVENT) {
        milliseconds = shutdown.milliseconds = registry_timeout(milliseconds);
        if (services_run())
            find_services(&shutdown);
    }
    if (event > CTRL_BREAK_EVENT)
        load_user_functions(members, count);
    if (*text) /* from now on the time counts */
        report_timeout(text, milliseconds);
    if (shutdown.count) {
        close_all_windows(members, count);
        services = CreateThread(NULL, 0, shut_services_down, &shutdown, 0, NULL);
    }
    for (int i = count - 1; i >= 0; i--)
        sent = send_control_event(members[i], event, milliseconds, i == count - 1) && i == 0;
    if (services)
        WaitForSingleObject(services, INFINITE);
    ExitProcess(sent ? 0 : 1);
}
