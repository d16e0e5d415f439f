/* winctrl EVENT PID MILLISECONDS: send a console control event to a process and to all that it has started.
 *
 * EVENT: 0 CTRL_C, 1 CTRL_BREAK, 2 CTRL_CLOSE, 5 CTRL_LOGOFF, 6 CTRL_SHUTDOWN. Wine has no session manager that would send
 * the last three, so the routine that calls a process's handlers is started in it from outside. As Windows does it, the
 * youngest process is told first, and the next one when it has ended or its time is over; of CLOSE, LOGOFF and SHUTDOWN a
 * handler that returns means the end of its process.
 */
#include <windows.h>
#include <tlhelp32.h>

#define MOST 512

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

static BOOL tell(DWORD pid, DWORD event, DWORD milliseconds)
{
    /* kernelbase is at the same address in all processes */
    void *routine = (void *)GetProcAddress(GetModuleHandleW(L"kernelbase.dll"), "CtrlRoutine");
    HANDLE process = OpenProcess(PROCESS_ALL_ACCESS, FALSE, pid);
    if (!process || !routine)
        return FALSE;
    HANDLE thread = CreateRemoteThread(process, NULL, 0, (LPTHREAD_START_ROUTINE)routine, (void *)(ULONG_PTR)event, 0, NULL);
    if (!thread)
        return FALSE;
    if (event > CTRL_BREAK_EVENT) {
        HANDLE either[2] = {process, thread};
        if (WaitForMultipleObjects(2, either, FALSE, milliseconds) == WAIT_OBJECT_0 + 1
            && WaitForSingleObject(process, 0) == WAIT_TIMEOUT)
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
    for (int i = family(pid, members) - 1; i >= 0; i--)
        told = tell(members[i], event, milliseconds) && i == 0;
    ExitProcess(told ? 0 : 1);
}
