#define _GNU_SOURCE
#include "pipes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIPESERVE "C:\\Windows\\System32\\pipeserve.exe"
#define AGAIN_MS 1000

static int dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (socket_fd >= 0 && connect(socket_fd, (struct sockaddr *)&address, sizeof address) == 0)
        return socket_fd;
    close(socket_fd);
    return -1;
}

static int move(int from, int to)
{
    char buffer[32768];
    ssize_t got = read(from, buffer, sizeof buffer);
    for (ssize_t done = 0, put; done < got; done += put)
        if ((put = write(to, buffer + done, got - done)) < 0)
            return 0;
    return got > 0;
}

/* Until both sides have closed their streams. */
static void relay(int one, int other)
{
    struct pollfd ends[2] = {{one, POLLIN, 0}, {other, POLLIN, 0}};
    while (ends[0].fd >= 0 || ends[1].fd >= 0) {
        if (poll(ends, 2, -1) < 0)
            return;
        for (int i = 0; i < 2; i++) {
            if (ends[i].fd >= 0 && ends[i].revents && !move(i ? other : one, i ? one : other)) {
                shutdown(i ? one : other, SHUT_WR);
                ends[i].fd = -1;
            }
        }
    }
}

/* Serves one client; whether one connected. `ready` is closed when the pipe exists. */
static int serve_one(char *loader, char *pipe_name, char *socket_path, int *ready)
{
    int stream[2], news[2];
    char byte;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream) < 0 || pipe2(news, O_CLOEXEC) < 0)
        return 0;
    if (fork() == 0) {
        signal(SIGPIPE, SIG_DFL);
        signal(SIGCHLD, SIG_DFL); /* Wine waits for its server to start */
        dup2(stream[1], STDIN_FILENO);
        dup2(stream[1], STDOUT_FILENO);
        dup2(news[1], STDERR_FILENO);
        execv(loader, (char *[]){loader, PIPESERVE, pipe_name, NULL});
        _exit(1);
    }
    close(stream[1]);
    close(news[1]);
    int came = read(news[0], &byte, 1) == 1;
    close(*ready);
    *ready = -1;
    came = came && read(news[0], &byte, 1) == 1;
    close(news[0]);
    if (came && fork() == 0) {
        int server = dial(socket_path);
        if (server >= 0)
            relay(stream[0], server);
        _exit(0);
    }
    close(stream[0]);
    return came;
}

void serve_pipe(char *loader, char *pipe_name, char *socket_path)
{
    int ready[2];
    char byte;
    if (pipe2(ready, O_CLOEXEC) < 0)
        return;
    if (fork() != 0) {
        close(ready[1]);
        if (read(ready[0], &byte, 1) < 0)
            perror(pipe_name);
        close(ready[0]);
        return;
    }
    close(ready[0]);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        if (!serve_one(loader, pipe_name, socket_path, &ready[1]))
            nanosleep(&(struct timespec){AGAIN_MS / 1000, AGAIN_MS % 1000 * 1000000L}, NULL);
}
