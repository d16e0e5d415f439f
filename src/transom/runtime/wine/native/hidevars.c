/* filter BLOCK, UNIT, NAMES: removes the variables with these names from a copy of an environment block, in place.
 *
 * UNIT is 1 for ANSI and 2 for UTF-16. NAMES end with a NUL each and another one after the last; '#' stands for decimal digits.
 * Nothing is removed for wineboot.exe, which sets a prefix up and needs these variables.
 * This is a library only because it is built like the other helpers: its code, which has no data and no fixed addresses, is
 * copied into kernelbase.dll (see changes.py).
 */
typedef unsigned char byte;

static unsigned character(const byte *text, int unit)
{
    return unit == 1 ? *text : *(const unsigned short *)text;
}

/* Whether a variable, NAME=value, has this name. */
static int is_named(const byte *text, int unit, const char *name)
{
    for (; *name; name++) {
        if (*name == '#') {
            while (character(text, unit) - '0' < 10)
                text += unit;
        } else if (character(text, unit) == (byte)*name) {
            text += unit;
        } else {
            return 0;
        }
    }
    return character(text, unit) == '=';
}

/* Four characters of a name in UTF-16, in lower case. */
static unsigned long long folded(const unsigned short *text)
{
    unsigned long long found = 0;
    for (int i = 3; i >= 0; i--)
        found = found << 16 | text[i] | 0x20;
    return found;
}

static int is_setup(void)
{
    static const int parameters = 0x20, image_path = 0x60, image_buffer = 0x68; /* of the PEB and what it points to */
    const byte *peb;
    __asm__("movq %%gs:0x60, %0" : "=r"(peb));
    const byte *process = *(const byte *const *)(peb + parameters);
    int length = *(const unsigned short *)(process + image_path) / 2;
    const unsigned short *path = *(const unsigned short *const *)(process + image_buffer);
    return length >= 12 && folded(path + length - 12) == 0x0065006E00690077 /* wine */
           && folded(path + length - 8) == 0x0074006F006F0062              /* boot */
           && folded(path + length - 4) == 0x006500780065002E;             /* .exe */
}

__declspec(dllexport) byte *filter(byte *block, int unit, const char *names)
{
    byte *from = block, *to = block;
    if (!block || is_setup())
        return block;
    while (character(from, unit)) {
        int hidden = 0;
        byte *start = to;
        unsigned last;
        for (const char *name = names; *name; name++) {
            hidden |= is_named(from, unit, name);
            while (*name)
                name++;
        }
        do {
            last = character(from, unit);
            for (int i = 0; i < unit; i++)
                to[i] = from[i];
            from += unit;
            to += unit;
        } while (last);
        if (hidden)
            to = start;
    }
    for (int i = 0; i < unit; i++)
        to[i] = 0;
    return block;
}

int start(void)
{
    return 1;
}
