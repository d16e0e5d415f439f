/* init [-s STATUS -c WINCTRL -g MILLISECONDS -t TIMEOUT] [-p PIPE SOCKET]... -- PROGRAM ARGUMENT...: the first process of a
 * container.
 *
 * It runs the program, reaps orphaned processes, and at the end lets Wine's server write the
 * registry. SIGTERM, SIGINT and SIGQUIT become CTRL_SHUTDOWN, CTRL_C and CTRL_BREAK of the Windows process
 * whose number is in STATUS (see winrun), by means of WINCTRL, which writes the time that it gives to the file TIMEOUT;
 * without those they are passed on. PIPEs are served in the container for SOCKETs.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pipes.h"

#define MOST_PIPES 16
#define CANNOT_RUN 127
#define SAVING_MS 2000 /* for the registry */
#define SERVICES_MS 20000 /* for WINCTRL, which waits for services; it itself gives them less */
#define STEP_MS 5
#define LATE_MS 100
#define COMM 16 /* the length of a process name on Linux */
#define TERMINATED 0xFFFFFFFFu /* the exit code of a process that another process terminated */
#define TERMINATED_STATUS 255

static char *status_file, *winctrl, *timeout_file, *patience = "5000";
#define DONE (-1)
static pid_t notifier; /* the WINCTRL that notifies the container of its shutdown, 0 before it starts, DONE after its end */
static sigset_t usual; /* the signal mask at the start */

static pid_t spawn(char **command)
{
    pid_t pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &usual, NULL);
        execv(command[0], command);
        perror(command[0]);
        _exit(CANNOT_RUN);
    }
    return pid;
}

/* The pid of the Windows process, or 0; and its name on Linux, possibly truncated. */
static unsigned windows_process(char *name, size_t room)
{
    unsigned pid = 0;
    char line[1024];
    FILE *file = status_file ? fopen(status_file, "r") : NULL;
    *name = 0;
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = 0;
        if (strncmp(line, "image ", 6) == 0) {
            strncpy(name, line + 6, room - 1);
            name[room - 1] = 0;
        }
        sscanf(line, "pid %u", &pid);
    }
    if (file)
        fclose(file);
    return pid;
}

static void read_comm(pid_t pid, char *name, size_t room)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "r");
    *name = 0;
    if (file) {
        if (fgets(name, (int)room, file))
            name[strcspn(name, "\n")] = 0;
        fclose(file);
    }
}

/* When the process started, in clock ticks after boot; 0 if unknown. Also works for a process that has ended. */
static unsigned long long read_start_time(pid_t pid)
{
    char path[64], line[1024] = "";
    unsigned long long started = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file) {
        char *after_name = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
        /* Fields 3 to 21 follow the name, then the start time. */
        if (after_name)
            sscanf(after_name + 1, " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", &started);
        fclose(file);
    }
    return started;
}

/* Wine reports 0 for a Windows process that a signal has ended, which is the same as success. All of them become children
 * of this process, so it knows how each has ended. The main program is the oldest one with its name: programs that it
 * starts, and those of exec, are younger. The order in which ends are seen does not matter. */
static int main_was_killed;
static unsigned long long main_started;

static void remember_end(const siginfo_t *ended)
{
    char name[COMM], main_name[COMM];
    read_comm(ended->si_pid, name, sizeof name);
    if (!windows_process(main_name, sizeof main_name) || !*main_name || strcmp(name, main_name) != 0)
        return;
    unsigned long long started = read_start_time(ended->si_pid);
    if (main_started == 0 || started < main_started) {
        main_started = started;
        main_was_killed = ended->si_code != CLD_EXITED;
    }
}

/* The last word of the status file counts. */
static void report_killed(void)
{
    FILE *file = main_was_killed && status_file ? fopen(status_file, "a") : NULL;
    if (file) {
        fprintf(file, "exit %u\n", TERMINATED);
        fclose(file);
    }
}

static void pass_on(int signal, pid_t child, char *loader)
{
    static const struct { int signal; char *event; } events[] = {{SIGTERM, "6"}, {SIGINT, "0"}, {SIGQUIT, "1"}};
    char name[COMM];
    unsigned pid = winctrl ? windows_process(name, sizeof name) : 0;
    if (!pid) {
        kill(child, signal);
        return;
    }
    for (unsigned i = 0; i < sizeof events / sizeof *events; i++) {
        if (events[i].signal == signal) {
            char text[16];
            snprintf(text, sizeof text, "%u", pid);
            pid_t started = spawn((char *[]){loader, winctrl, events[i].event, text, patience, timeout_file, NULL});
            if (signal == SIGTERM)
                notifier = started;
        }
    }
}

static void stop_wineserver(void)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    while (processes && (entry = readdir(processes))) {
        char path[300], name[32] = "";
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file) {
            if (fgets(name, sizeof name, file) && strncmp(name, "wineserver", 10) == 0)
                kill(atoi(entry->d_name), SIGINT);
            fclose(file);
        }
    }
    if (processes)
        closedir(processes);
}

/* Until all processes have ended, or this one. The others end with Wine's server. */
static void wait_for(pid_t wanted, int milliseconds)
{
    for (int waited = 0; waited < milliseconds; waited += STEP_MS) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            if (pid == wanted)
                return;
        if (pid < 0)
            return;
        nanosleep(&(struct timespec){0, STEP_MS * 1000000L}, NULL);
    }
}

static int still_runs(const char *wanted)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    int found = 0;
    while (processes && !found && (entry = readdir(processes))) {
        char name[COMM];
        if (isdigit((unsigned char)entry->d_name[0])) {
            read_comm(atoi(entry->d_name), name, sizeof name);
            found = strcmp(name, wanted) == 0;
        }
    }
    if (processes)
        closedir(processes);
    return found;
}

/* Those that have ended by now. The main program's end may be seen after that of its runner. */
static void gather_ended(void)
{
    siginfo_t about;
    char name[COMM];
    windows_process(name, sizeof name);
    for (int waited = 0; waited < LATE_MS; waited += STEP_MS) {
        while (about.si_pid = 0, waitid(P_ALL, 0, &about, WEXITED | WNOHANG | WNOWAIT) == 0 && about.si_pid > 0) {
            remember_end(&about);
            if (waitpid(about.si_pid, NULL, 0) == notifier)
                notifier = DONE;
        }
        if (!*name || !still_runs(name))
            return;
        nanosleep(&(struct timespec){0, STEP_MS * 1000000L}, NULL);
    }
}

int main(int count, char **arguments)
{
    char *pipes[MOST_PIPES], *sockets[MOST_PIPES];
    int option, pipe_count = 0;
    while ((option = getopt(count, arguments, "+s:c:g:t:p:")) != -1) {
        if (option == 's')
            status_file = optarg;
        else if (option == 'c')
            winctrl = optarg;
        else if (option == 'g')
            patience = optarg;
        else if (option == 't')
            timeout_file = optarg;
        else if (option == 'p' && pipe_count < MOST_PIPES && optind < count) {
            pipes[pipe_count] = optarg;
            sockets[pipe_count++] = arguments[optind++];
        }
    }
    if (optind >= count)
        return CANNOT_RUN;
    char **program = arguments + optind;

    sigset_t handled;
    sigemptyset(&handled);
    sigaddset(&handled, SIGCHLD);
    sigaddset(&handled, SIGTERM);
    sigaddset(&handled, SIGINT);
    sigaddset(&handled, SIGQUIT);
    sigprocmask(SIG_BLOCK, &handled, &usual);

    for (int i = 0; i < pipe_count; i++)
        serve_pipe(program[0], pipes[i], sockets[i]);
    pid_t child = spawn(program);

    for (;;) {
        int signal = sigwaitinfo(&handled, NULL), ended;
        pid_t pid;
        siginfo_t about;
        if (signal > 0 && signal != SIGCHLD)
            pass_on(signal, child, program[0]);
        while (about.si_pid = 0, waitid(P_ALL, 0, &about, WEXITED | WNOHANG | WNOWAIT) == 0 && about.si_pid > 0) {
            if (about.si_pid != child)
                remember_end(&about);
            pid = waitpid(about.si_pid, &ended, 0);
            if (pid == notifier)
                notifier = DONE;
            if (pid == child) {
                gather_ended();
                if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0 && main_was_killed) {
                    report_killed();
                    ended = TERMINATED_STATUS << 8;
                }
                if (notifier > 0)
                    wait_for(notifier, SERVICES_MS);
                stop_wineserver();
                wait_for(0, SAVING_MS);
                return WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
            }
        }
    }
}
