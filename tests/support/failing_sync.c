/* fsync and fdatasync fail with EIO while the file named by FAIL_SYNC_WHILE exists.
   A later sync of the same file succeeds, as on Linux: the error is reported once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int sync_or_fail(const char *name, int fd) {
    const char *control = getenv("FAIL_SYNC_WHILE");
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (control != NULL && access(control, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return next(fd);
}

int fsync(int fd) { return sync_or_fail("fsync", fd); }
int fdatasync(int fd) { return sync_or_fail("fdatasync", fd); }
