/* A clock that a test sets, for one program: the real time, and what a file says.

   LD_PRELOAD=set_clock.so SET_CLOCK_FILE=path: the file holds a number of milliseconds, eight bytes, signed, which
   is added to CLOCK_REALTIME from the moment it is written. The other clocks are the system's. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *ahead_ms;

__attribute__((constructor)) static void open_file(void)
{
    const char *path = getenv("SET_CLOCK_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *found;

    if (fd < 0)
        return;
    found = mmap(NULL, sizeof *ahead_ms, PROT_READ, MAP_SHARED, fd, 0);
    if (found != MAP_FAILED)
        ahead_ms = found;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);

    if (!failed && ahead_ms && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = now->tv_nsec + *ahead_ms % 1000 * 1000000;
        now->tv_sec += *ahead_ms / 1000 + (ns >= 1000000000) - (ns < 0);
        now->tv_nsec = ns - (ns >= 1000000000) * 1000000000L + (ns < 0) * 1000000000L;
    }
    return failed;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact))
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where)
{
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact))
        return -1;
    if (where)
        *where = exact.tv_sec;
    return exact.tv_sec;
}
