/* pipeserve NAME: wait for one client of the Win32 named pipe NAME, then relay it to the standard input and output.
 *
 * A byte on the standard error reports that the pipe exists, another one that a client has connected. The parent process has
 * the other ends, connects them to the Unix socket that represents the pipe of the machine, and starts the next pipeserve.
 */
#include <windows.h>

static HANDLE pipe;

/* The pipe is read and written at the same time, which takes overlapped calls. */
static BOOL finish(BOOL done, OVERLAPPED *call, DWORD *count)
{
    if (!done && GetLastError() == ERROR_IO_PENDING)
        done = GetOverlappedResult(pipe, call, count, TRUE);
    CloseHandle(call->hEvent);
    return done;
}

static DWORD WINAPI to_client(void *unused)
{
    static char buffer[32768];
    HANDLE input = GetStdHandle(STD_INPUT_HANDLE);
    DWORD got, put;
    (void)unused;

    while (ReadFile(input, buffer, sizeof buffer, &got, NULL) && got) {
        for (DWORD done = 0; done < got; done += put) {
            OVERLAPPED call = {.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL)};
            if (!finish(WriteFile(pipe, buffer + done, got - done, &put, &call), &call, &put))
                ExitProcess(0);
        }
    }
    FlushFileBuffers(pipe); /* until the client has read the last bytes */
    ExitProcess(0);
}

static void from_client(void)
{
    static char buffer[32768];
    HANDLE output = GetStdHandle(STD_OUTPUT_HANDLE);
    DWORD got, put;

    for (;;) {
        OVERLAPPED call = {.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL)};
        if (!finish(ReadFile(pipe, buffer, sizeof buffer, &got, &call), &call, &got) || !got)
            return;
        for (DWORD done = 0; done < got; done += put)
            if (!WriteFile(output, buffer + done, got - done, &put, NULL))
                return;
    }
}

void start(void)
{
    WCHAR *name = GetCommandLineW();
    DWORD count;

    for (WCHAR *c = name; *c; c++)
        if (*c == L' ' && c[1] && c[1] != L' ')
            name = c + 1;
    pipe = CreateNamedPipeW(name, PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED, PIPE_TYPE_BYTE | PIPE_WAIT,
                            PIPE_UNLIMITED_INSTANCES, 65536, 65536, 0, NULL);
    if (pipe == INVALID_HANDLE_VALUE)
        ExitProcess(1);
    HANDLE news = GetStdHandle(STD_ERROR_HANDLE);
    WriteFile(news, ".", 1, &count, NULL);
    OVERLAPPED call = {.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL)};
    BOOL connected = ConnectNamedPipe(pipe, &call) || GetLastError() == ERROR_PIPE_CONNECTED;
    if (!connected && !finish(FALSE, &call, &count))
        ExitProcess(1);
    WriteFile(news, "+", 1, &count, NULL);
    CreateThread(NULL, 0, to_client, NULL, 0, NULL);
    from_client();
    ExitProcess(0);
}
