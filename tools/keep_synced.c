/* What of a folder's files is on the disk: a library that is loaded before a program (LD_PRELOAD).

Whenever a file below $SYNCED_OF has been synced (fsync, fdatasync), its content is copied to the
folder $SYNCED_TO; when the folder is synced, copies of files that were deleted are deleted. After a
power loss only that is sure to be there; whatever was done since then may be there or not, in any
order. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void forget_deleted(const char *of, const char *to) {
    char path[PATH_MAX], copy[PATH_MAX];
    DIR *folder = opendir(to);
    for (struct dirent *one; folder && (one = readdir(folder));) {
        snprintf(path, sizeof path, "%s/%s", of, one->d_name);
        snprintf(copy, sizeof copy, "%s/%s", to, one->d_name);
        if (access(path, F_OK)) unlink(copy);
    }
    if (folder) closedir(folder);
}

static void keep(int file) {
    const char *of = getenv("SYNCED_OF"), *to = getenv("SYNCED_TO");
    char link[64], path[PATH_MAX], copy[PATH_MAX], fresh[PATH_MAX + 16];
    static char block[1 << 16];
    struct stat about;
    if (!of || !to || fstat(file, &about)) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    if (S_ISDIR(about.st_mode) && !strcmp(path, of)) forget_deleted(of, to);
    if (!S_ISREG(about.st_mode) || strncmp(path, of, strlen(of))) return;
    snprintf(copy, sizeof copy, "%s/%s", to, strrchr(path, '/') + 1);
    snprintf(fresh, sizeof fresh, "%s.%d", copy, (int)getpid());
    int from = open(path, O_RDONLY), out = open(fresh, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    for (ssize_t n; from >= 0 && out >= 0 && (n = read(from, block, sizeof block)) > 0;)
        if (write(out, block, n) != n) abort();
    close(from);
    close(out);
    rename(fresh, copy); /* a kill leaves the copy before, or this one */
}

static int after(const char *name, int file) {
    int (*plain)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int status = plain(file);
    if (!status) keep(file);
    return status;
}

int fsync(int file) { return after("fsync", file); }
int fdatasync(int file) { return after("fdatasync", file); }
