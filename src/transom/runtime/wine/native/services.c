/* See services.h. */
#include <windows.h>
#include <tlhelp32.h>
#include <winternl.h>

#include "services.h"

#define ProcessWineMakeProcessSystem 1000

DWORD registry_timeout(DWORD otherwise)
{
    WCHAR text[10] = L"";
    DWORD size = sizeof text - sizeof *text;
    if (RegGetValueW(HKEY_LOCAL_MACHINE, L"System\\CurrentControlSet\\Control", L"WaitToKillServiceTimeout", RRF_RT_REG_SZ,
                     NULL, text, &size))
        return otherwise;
    DWORD value = 0;
    for (WCHAR *at = text; *at; at++) {
        if (*at < L'0' || *at > L'9')
            return otherwise;
        value = value * 10 + (*at - L'0');
    }
    return *text ? value : otherwise;
}

/* Wine's own services are skipped: they have nothing to save. */
BOOL services_run(void)
{
    static const WCHAR *own[] = {L"winedevice.exe", L"plugplay.exe", L"svchost.exe", L"rpcss.exe"};
    PROCESSENTRY32W process = {.dwSize = sizeof process};
    DWORD manager = 0;
    BOOL found = FALSE;
    HANDLE list = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
    for (BOOL more = Process32FirstW(list, &process); more; more = Process32NextW(list, &process))
        if (lstrcmpiW(process.szExeFile, L"services.exe") == 0)
            manager = process.th32ProcessID;
    for (BOOL more = Process32FirstW(list, &process); more && !found; more = Process32NextW(list, &process)) {
        found = manager && process.th32ParentProcessID == manager;
        for (unsigned i = 0; i < sizeof own / sizeof *own; i++)
            if (lstrcmpiW(process.szExeFile, own[i]) == 0)
                found = FALSE;
    }
    CloseHandle(list);
    return found;
}

void find_services(struct shutdown *shutdown)
{
    static BYTE buffer[65536];
    DWORD needed, found = 0, resume = 0;
    SC_HANDLE manager = OpenSCManagerW(NULL, NULL, SC_MANAGER_ENUMERATE_SERVICE);
    if (!manager)
        return;
    if (EnumServicesStatusExW(manager, SC_ENUM_PROCESS_INFO, SERVICE_WIN32, SERVICE_ACTIVE, buffer, sizeof buffer, &needed,
                              &found, &resume, NULL)) {
        ENUM_SERVICE_STATUS_PROCESSW *services = (ENUM_SERVICE_STATUS_PROCESSW *)buffer;
        for (DWORD i = 0; i < found && shutdown->count < MAXIMUM_WAIT_OBJECTS; i++) {
            SERVICE_STATUS_PROCESS *status = &services[i].ServiceStatusProcess;
            HANDLE process = NULL;
            if (status->dwControlsAccepted & (SERVICE_ACCEPT_SHUTDOWN | SERVICE_ACCEPT_PRESHUTDOWN))
                process = OpenProcess(SYNCHRONIZE, FALSE, status->dwProcessId);
            if (process)
                shutdown->processes[shutdown->count++] = process;
        }
    }
    CloseServiceHandle(manager);
}

/* The first thread of Wine's service manager, which waits for the shutdown. While it is suspended, services can still report their
 * states to the manager; Wine itself does not wait for them, and what they are asked for depends on the race. */
static HANDLE manager_thread(void)
{
    PROCESSENTRY32W process = {.dwSize = sizeof process};
    THREADENTRY32 thread = {.dwSize = sizeof thread};
    DWORD manager = 0;
    ULONGLONG earliest = ~0ull;
    HANDLE found = NULL, list = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS | TH32CS_SNAPTHREAD, 0);
    for (BOOL more = Process32FirstW(list, &process); more; more = Process32NextW(list, &process))
        if (lstrcmpiW(process.szExeFile, L"services.exe") == 0)
            manager = process.th32ProcessID;
    for (BOOL more = Thread32First(list, &thread); more; more = Thread32Next(list, &thread)) {
        FILETIME created, other;
        HANDLE opened = NULL;
        if (manager && thread.th32OwnerProcessID == manager)
            opened = OpenThread(THREAD_SUSPEND_RESUME | THREAD_QUERY_INFORMATION, FALSE, thread.th32ThreadID);
        if (!opened)
            continue;
        ULONGLONG moment = ~0ull;
        if (GetThreadTimes(opened, &created, &other, &other, &other))
            moment = (ULONGLONG)created.dwHighDateTime << 32 | created.dwLowDateTime;
        if (moment < earliest) {
            HANDLE later = found;
            found = opened, earliest = moment, opened = later;
        }
        if (opened)
            CloseHandle(opened);
    }
    CloseHandle(list);
    return found;
}

/* Wine notifies services when the last program has ended, by an event that its server keeps. System processes get a handle
 * of that event, so this one becomes a system process and sets it. */
DWORD WINAPI shut_services_down(void *argument)
{
    struct shutdown *shutdown = argument;
    HANDLE event = NULL, settable = NULL, manager;
    if (!shutdown->count)
        return 0;
    manager = manager_thread();
    SuspendThread(manager); /* first: the event may be set as soon as there are only system processes */
    NtSetInformationProcess(GetCurrentProcess(), (PROCESSINFOCLASS)ProcessWineMakeProcessSystem, &event, sizeof(HANDLE *));
    if (event && DuplicateHandle(GetCurrentProcess(), event, GetCurrentProcess(), &settable, EVENT_MODIFY_STATE, FALSE, 0)) {
        SetEvent(settable);
        WaitForMultipleObjects(shutdown->count, shutdown->processes, TRUE, shutdown->milliseconds);
    }
    ResumeThread(manager);
    return 0;
}
