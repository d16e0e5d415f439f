/* Preloaded into the API servers: shifts the wall clock of a process by the nanoseconds in
   $SKEW_FOLDER/PID, which the test writes. The monotonic clock stays as it is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("SKEW_FOLDER");
    char path[4096];
    if (folder == NULL) return;
    snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (ftruncate(file, 8) == 0) {
        void *found = mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);
        if (found != MAP_FAILED) offset = found;
    }
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && offset != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t nanoseconds = now->tv_nsec + *offset % 1000000000;
        now->tv_sec += *offset / 1000000000;
        if (nanoseconds < 0) { nanoseconds += 1000000000; now->tv_sec--; }
        if (nanoseconds >= 1000000000) { nanoseconds -= 1000000000; now->tv_sec++; }
        now->tv_nsec = nanoseconds;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (where != NULL) *where = exact.tv_sec;
    return exact.tv_sec;
}
