/* winctrl EVENT PID MILLISECONDS: send a console control event to a process and to all that it has started.
 *
 * EVENT: 0 CTRL_C, 1 CTRL_BREAK, 2 CTRL_CLOSE, 5 CTRL_LOGOFF, 6 CTRL_SHUTDOWN. Wine has no session manager that would send
 * the last three, so the routine that calls a process's handlers is started in it from outside. As Windows does it, the
 * youngest process is told first, and the next one when it has ended or its time is over; of CLOSE, LOGOFF and SHUTDOWN a
 * handler that returns means the end of its process, and a process whose handlers all decline ends with
 * STATUS_CONTROL_C_EXIT (Wine says 0).
 */
#include <windows.h>
#include <tlhelp32.h>

#define MOST 512
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

static BOOL tell(DWORD pid, DWORD event, DWORD milliseconds, BOOL first)
{
    /* kernelbase is at the same address in all processes */
    void *routine = (void *)GetProcAddress(GetModuleHandleW(L"kernelbase.dll"), "CtrlRoutine");
    HANDLE process = OpenProcess(PROCESS_ALL_ACCESS, FALSE, pid);
    if (!process || !routine)
        return FALSE;
    if (!first && event > CTRL_BREAK_EVENT && WaitForSingleObject(process, MOMENT_MS) == WAIT_OBJECT_0)
        return TRUE;
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

void start(void)
{
    static DWORD members[MOST];
    WCHAR *text = GetCommandLineW();
    if (*text == L'"')
        for (text++; *text && *text != L'"'; text++)
            ;
    while (*text && *text != L' ')
        text++;
    DWORD event = number(&text), pid = number(&text), milliseconds = number(&text);
    BOOL told = FALSE;
    int last = family(pid, members) - 1;
    for (int i = last; i >= 0; i--)
        told = tell(members[i], event, milliseconds, i == last) && i == 0;
    ExitProcess(told ? 0 : 1);
}
