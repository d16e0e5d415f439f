/* tar: the part of Windows' tar.exe that `kubectl cp` uses.
 *
 * tar xf FILE [-C FOLDER]            unpack; `-` is the standard input
 * tar cf FILE [-C FOLDER] PATH...    pack; `-` is the standard output
 *
 * The letters may have a hyphen in front; m, p, v and options with two hyphens are ignored. Files and
 * folders only. A name never leads outside of the folder.
 */
#include <windows.h>

#define BLOCK 512
#define LONGEST 4096
#define CHUNK 65536

/* The parts of the C library that every Windows version has. */
void *memset(void *, int, size_t);
void *memcpy(void *, const void *, size_t);
int memcmp(const void *, const void *, size_t);
int _snprintf(char *, size_t, const char *, ...);
int __wgetmainargs(int *, WCHAR ***, WCHAR ***, int, int *);

struct header {
    char name[100], mode[8], owner[8], group[8], size[12], time[12], sum[8], type, link[100], magic[8], user[32], team[32],
        major[8], minor[8], prefix[155], rest[12];
};

static HANDLE archive;
static int failed;
static char buffer[CHUNK], long_name[LONGEST];
static WCHAR wide[LONGEST];

static void print_error(const char *about, const char *what)
{
    static char text[LONGEST + 128];
    DWORD written;

    int length = _snprintf(text, sizeof text - 1, "tar.exe: %s: %s\r\n", about, what);
    WriteFile(GetStdHandle(STD_ERROR_HANDLE), text, length < 0 ? (DWORD)sizeof text - 1 : (DWORD)length, &written, NULL);
    failed = 1;
}

static BOOL read_archive(void *to, DWORD wanted)
{
    for (DWORD got; wanted; to = (char *)to + got, wanted -= got)
        if (!ReadFile(archive, to, wanted, &got, NULL) || !got)
            return FALSE;
    return TRUE;
}

static void write_archive(const void *from, DWORD length)
{
    for (DWORD done; length; from = (const char *)from + done, length -= done)
        if (!WriteFile(archive, from, length, &done, NULL))
            ExitProcess(1);
}

static WCHAR *to_wide(const char *name)
{
    if (!MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, name, -1, wide, LONGEST))
        return NULL;
    for (WCHAR *c = wide; *c; c++)
        if (*c == L'/')
            *c = L'\\';
    return wide;
}

static DWORD padding(ULONGLONG size)
{
    return (DWORD)((BLOCK - size % BLOCK) % BLOCK);
}

static ULONGLONG octal(const char *field, int length)
{
    ULONGLONG number = 0;
    for (int i = 0; i < length && field[i]; i++)
        if (field[i] >= '0' && field[i] <= '7')
            number = number * 8 + (field[i] - '0');
    return number;
}

/* ---- unpacking ---- */

/* The part of a name after leading slashes and dots; NULL if it is outside of the folder. */
static char *relative_name(char *name)
{
    while (*name == '/' || *name == '\\' || (*name == '.' && (name[1] == '/' || name[1] == '\\')))
        name++;
    for (char *part = name; *part;) {
        char *end = part;
        for (; *end && *end != '/' && *end != '\\'; end++)
            if (*end == ':')
                return NULL;
        if (end - part == 2 && part[0] == '.' && part[1] == '.')
            return NULL;
        part = *end ? end + 1 : end;
    }
    return name;
}

static void make_parents(WCHAR *path)
{
    for (WCHAR *c = path; *c; c++)
        if (*c == L'\\' && c > path) {
            *c = 0;
            CreateDirectoryW(path, NULL);
            *c = L'\\';
        }
}

/* The rest of an entry; `to` may be NULL. */
static void extract_content(ULONGLONG size, HANDLE to)
{
    DWORD pad = padding(size), done;

    while (size) {
        DWORD part = size < CHUNK ? (DWORD)size : CHUNK;
        if (!read_archive(buffer, part)) {
            print_error("-", "the archive is truncated");
            ExitProcess(1);
        }
        if (to && !WriteFile(to, buffer, part, &done, NULL)) {
            print_error("-", "the disk is full");
            to = NULL;
        }
        size -= part;
    }
    read_archive(buffer, pad);
}

static void unpack_file(char *name, ULONGLONG size)
{
    WCHAR *path = to_wide(name);
    HANDLE file = NULL;

    if (path) {
        make_parents(path);
        file = CreateFileW(path, GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL);
    }
    if (!path || file == INVALID_HANDLE_VALUE) {
        print_error(name, "cannot be written");
        file = NULL;
    }
    extract_content(size, file);
    if (file)
        CloseHandle(file);
}

/* The path of a pax header: lines of "LENGTH KEY=VALUE\n". */
static void find_path(const char *text, DWORD length)
{
    for (DWORD at = 0; at < length;) {
        DWORD size = 0, end = at;
        for (; end < length && text[end] >= '0' && text[end] <= '9'; end++)
            size = size * 10 + (text[end] - '0');
        if (!size || at + size > length || end + 7 > at + size)
            return;
        if (!memcmp(text + end, " path=", 6) && at + size - 1 - (end + 6) < LONGEST - 1) {
            memset(long_name, 0, LONGEST);
            memcpy(long_name, text + end + 6, at + size - 1 - (end + 6));
        }
        at += size;
    }
}

static void unpack(void)
{
    static struct header h;
    static char joined[LONGEST];

    while (read_archive(&h, BLOCK) && h.name[0]) {
        ULONGLONG size = octal(h.size, sizeof h.size);
        if ((h.type == 'x' || h.type == 'L') && size < LONGEST) {
            static char extra[LONGEST];
            read_archive(extra, (DWORD)size);
            read_archive(buffer, padding(size));
            extra[size] = 0;
            if (h.type == 'x')
                find_path(extra, (DWORD)size);
            else
                memcpy(long_name, extra, (size_t)size + 1);
            continue;
        }
        BOOL prefixed = h.prefix[0] && !memcmp(h.magic, "ustar", 6);
        if (long_name[0])
            _snprintf(joined, LONGEST - 1, "%s", long_name);
        else
            _snprintf(joined, LONGEST - 1, "%.155s%s%.100s", prefixed ? h.prefix : "", prefixed ? "/" : "", h.name);
        long_name[0] = 0;
        char *name = relative_name(joined);
        if (h.type == 'g') {
            extract_content(size, NULL);
        } else if (!name) {
            print_error(joined, "the name is outside of the folder");
            extract_content(size, NULL);
        } else if (h.type == '5') {
            WCHAR *path = to_wide(name);
            if (path && *path) {
                make_parents(path);
                CreateDirectoryW(path, NULL);
            }
            extract_content(size, NULL);
        } else if (h.type == '0' || h.type == 0) {
            unpack_file(name, size);
        } else {
            print_error(name, "is neither a file nor a folder: skipped");
            extract_content(size, NULL);
        }
    }
}

/* ---- packing ---- */

static void put_header(const char *name, char type, ULONGLONG size, const FILETIME *time)
{
    struct header h;
    int length = lstrlenA(name), cut = 0;
    ULONGLONG ticks = time ? ((ULONGLONG)time->dwHighDateTime << 32 | time->dwLowDateTime) / 10000000 : 0;
    unsigned sum = 0;

    memset(&h, 0, sizeof h);
    if (length > 100) {
        for (int i = length - 101; i < length - 1 && i < 155; i++)
            if (i > 0 && name[i] == '/') {
                cut = i;
                break;
            }
        if (!cut) { /* the name as a separate entry, as GNU tar writes it */
            put_header("././@LongLink", 'L', (ULONGLONG)length + 1, NULL);
            write_archive(name, (DWORD)length + 1);
            memset(buffer, 0, BLOCK);
            write_archive(buffer, padding((ULONGLONG)length + 1));
        }
    }
    if (cut)
        memcpy(h.prefix, name, cut);
    const char *last = cut ? name + cut + 1 : name;
    length = lstrlenA(last);
    memcpy(h.name, last, length > 100 ? 100 : length);
    _snprintf(h.mode, 8, "%07o", type == '5' ? 0755 : 0644);
    _snprintf(h.owner, 8, "%07o", 0);
    _snprintf(h.group, 8, "%07o", 0);
    _snprintf(h.size, 12, "%03o%08o", (unsigned)(size >> 24), (unsigned)(size & 0xffffff));
    ticks = ticks > 11644473600ULL ? ticks - 11644473600ULL : 0;
    _snprintf(h.time, 12, "%03o%08o", (unsigned)(ticks >> 24), (unsigned)(ticks & 0xffffff));
    h.type = type;
    memcpy(h.magic, "ustar\00000", 8);
    memset(h.sum, ' ', 8);
    for (int i = 0; i < BLOCK; i++)
        sum += ((unsigned char *)&h)[i];
    _snprintf(h.sum, 7, "%06o", sum);
    write_archive(&h, BLOCK);
}

static void pack_file(const char *name, const WCHAR *path, ULONGLONG size, const FILETIME *time)
{
    HANDLE file = CreateFileW(path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING, 0, NULL);
    DWORD got, pad = padding(size);

    if (file == INVALID_HANDLE_VALUE) {
        print_error(name, "cannot be read");
        return;
    }
    put_header(name, '0', size, time);
    while (size) { /* exactly the announced size, even if the file changes meanwhile */
        DWORD part = size < CHUNK ? (DWORD)size : CHUNK;
        if (!ReadFile(file, buffer, part, &got, NULL) || !got) {
            memset(buffer, 0, part);
            got = part;
        }
        write_archive(buffer, got);
        size -= got;
    }
    memset(buffer, 0, BLOCK);
    write_archive(buffer, pad);
    CloseHandle(file);
}

/* `path` has room for LONGEST characters; its content is restored. */
static void pack(WCHAR *path)
{
    WIN32_FIND_DATAW found;
    WIN32_FILE_ATTRIBUTE_DATA about;
    char *utf8 = HeapAlloc(GetProcessHeap(), 0, LONGEST * 3);
    int length = lstrlenW(path);

    WideCharToMultiByte(CP_UTF8, 0, path, -1, utf8, LONGEST * 3 - 1, NULL, NULL);
    for (char *c = utf8; *c; c++)
        if (*c == '\\')
            *c = '/';
    char *name = utf8[0] && utf8[1] == ':' ? utf8 + 2 : utf8;
    while (*name == '/')
        name++;
    if (!GetFileAttributesExW(path, GetFileExInfoStandard, &about)) {
        print_error(utf8, "Couldn't visit directory: No such file or directory");
    } else if (!(about.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY)) {
        pack_file(name, path, (ULONGLONG)about.nFileSizeHigh << 32 | about.nFileSizeLow, &about.ftLastWriteTime);
    } else {
        if (*name) {
            lstrcatA(name, "/");
            put_header(name, '5', 0, &about.ftLastWriteTime);
        }
        if (length + MAX_PATH + 2 < LONGEST) {
            lstrcatW(path, L"\\*");
            HANDLE search = FindFirstFileW(path, &found);
            for (BOOL more = search != INVALID_HANDLE_VALUE; more; more = FindNextFileW(search, &found)) {
                if (!lstrcmpW(found.cFileName, L".") || !lstrcmpW(found.cFileName, L".."))
                    continue;
                lstrcpyW(path + length + 1, found.cFileName);
                pack(path);
            }
            FindClose(search);
        }
    }
    path[length] = 0;
    HeapFree(GetProcessHeap(), 0, utf8);
}

/* ---- the command line ---- */

static DWORD run(int count, WCHAR **words)
{
    WCHAR *file = L"-", *folder = NULL, what = 0;
    int paths = 0;

    for (int i = 1; i < count; i++) {
        WCHAR *word = words[i];
        if (word[0] == L'-' && word[1] == L'-')
            continue;
        if (word[0] == L'-' && word[1] == L'C' && i + 1 < count) {
            folder = words[++i];
        } else if (i == 1 || (word[0] == L'-' && word[1])) {
            for (WCHAR *c = word + (word[0] == L'-'); *c; c++) {
                if (*c == L'c' || *c == L'x')
                    what = *c;
                else if (*c == L'f' && i + 1 < count)
                    file = words[++i];
                else if (*c != L'm' && *c != L'p' && *c != L'v') {
                    print_error("-", "only c, x, f, m, p, v and -C are supported");
                    return 1;
                }
            }
        } else {
            words[paths++] = word;
        }
    }
    BOOL standard = !lstrcmpW(file, L"-");
    archive = standard ? GetStdHandle(what == L'c' ? STD_OUTPUT_HANDLE : STD_INPUT_HANDLE)
                       : CreateFileW(file, what == L'c' ? GENERIC_WRITE : GENERIC_READ, FILE_SHARE_READ, NULL,
                                     what == L'c' ? CREATE_ALWAYS : OPEN_EXISTING, 0, NULL);
    if (!what || archive == INVALID_HANDLE_VALUE) {
        print_error("-", what ? "the archive cannot be opened" : "Must specify one of -c, -x");
        return 1;
    }
    if (folder && !SetCurrentDirectoryW(folder)) {
        print_error("-", "could not chdir to the folder");
        return 1;
    }
    if (what == L'x') {
        unpack();
        return failed;
    }
    for (int i = 0; i < paths; i++) {
        static WCHAR path[LONGEST];
        lstrcpynW(path, words[i], LONGEST - 1);
        for (WCHAR *c = path; *c; c++)
            if (*c == L'/')
                *c = L'\\';
        for (int end = lstrlenW(path); end > 1 && path[end - 1] == L'\\'; end--)
            path[end - 1] = 0;
        pack(path);
    }
    memset(buffer, 0, 2 * BLOCK);
    write_archive(buffer, 2 * BLOCK);
    return failed;
}

void start(void)
{
    int count, mode = 0;
    WCHAR **words, **variables;
    __wgetmainargs(&count, &words, &variables, 0, &mode);
    ExitProcess(run(count, words));
}
