/* init [-s STATUS -c WINCTRL -g MILLISECONDS] [-p PIPE SOCKET]... -- PROGRAM ARGUMENT...: the first process of a container.
 *
 * It runs the program, gathers whoever is left without a parent, and at the end lets Wine's server write the registry.
 * SIGTERM, SIGINT and SIGQUIT become CTRL_SHUTDOWN, CTRL_C and CTRL_BREAK of the Windows process whose number is in STATUS
 * (see winrun), by means of WINCTRL; without those they are passed on. PIPEs are served in the container for SOCKETs.
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
#define STEP_MS 5

static char *status_file, *winctrl, *patience = "5000";
static sigset_t usual; /* the signals as we found them */

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

/* The number of the Windows process, or 0. */
static unsigned windows_process(void)
{
    unsigned pid = 0;
    FILE *file = status_file ? fopen(status_file, "r") : NULL;
    if (file) {
        if (fscanf(file, "pid %u", &pid) != 1)
            pid = 0;
        fclose(file);
    }
    return pid;
}

static void pass_on(int signal, pid_t child, char *loader)
{
    static const struct { int signal; char *event; } events[] = {{SIGTERM, "6"}, {SIGINT, "0"}, {SIGQUIT, "1"}};
    unsigned pid = winctrl ? windows_process() : 0;
    if (!pid) {
        kill(child, signal);
        return;
    }
    for (unsigned i = 0; i < sizeof events / sizeof *events; i++) {
        if (events[i].signal == signal) {
            char text[16];
            snprintf(text, sizeof text, "%u", pid);
            spawn((char *[]){loader, winctrl, events[i].event, text, patience, NULL});
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

/* Everybody who is left ends with Wine's server. */
static void wait_for_the_rest(void)
{
    for (int waited = 0; waited < SAVING_MS; waited += STEP_MS) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (pid < 0)
            return;
        nanosleep(&(struct timespec){0, STEP_MS * 1000000L}, NULL);
    }
}

int main(int count, char **arguments)
{
    char *pipes[MOST_PIPES], *sockets[MOST_PIPES];
    int option, pipe_count = 0;
    while ((option = getopt(count, arguments, "+s:c:g:p:")) != -1) {
        if (option == 's')
            status_file = optarg;
        else if (option == 'c')
            winctrl = optarg;
        else if (option == 'g')
            patience = optarg;
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
        if (signal > 0 && signal != SIGCHLD)
            pass_on(signal, child, program[0]);
        while ((pid = waitpid(-1, &ended, WNOHANG)) > 0) {
            if (pid == child) {
                stop_wineserver();
                wait_for_the_rest();
                return WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
            }
        }
    }
}
