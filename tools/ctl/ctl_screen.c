/* SPDX-License-Identifier: Apache-2.0 */
/* A text over the whole screen, by ncurses. */
#include "tools/ctl/ctl_screen.h"

#include <base/clock.h>
#include <base/must.h>
#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ctl/ctl_watch.h"

#define NAP_MS 50

static struct {
	SCREEN *screen;
	FILE *terminal, *text_stream;
	char *text;
	size_t size;
	int lines; /* of the text */
	int first; /* shown at the top */
} s;

bool ctl_screen_open(void)
{
	s.screen = newterm(NULL, stdout, stdin);
	if (!s.screen)
		return false;
	cbreak();
	noecho();
	curs_set(0);
	keypad(stdscr, TRUE);
	return true;
}

void ctl_screen_close(void)
{
	endwin();
	delscreen(s.screen);
	free(s.text);
	s.text = NULL;
	s.screen = NULL;
}

static void draw(void)
{
	int most = s.lines > LINES ? s.lines - LINES + 1 : 0;
	int line = 0;
	s.first = s.first > most ? most : s.first < 0 ? 0 : s.first;
	erase();
	for (const char *at = s.text; at && *at; line++) {
		const char *end = strchrnul(at, '\n');
		int row = line - s.first;
		if (row >= 0 && row < LINES - (most > 0))
			mvaddnstr(row, 0, at, (int)(end - at));
		at = *end ? end + 1 : end;
	}
	if (most > 0) {
		attron(A_REVERSE);
		mvprintw(LINES - 1, 0, "lines %d to %d of %d: arrows, page up and down; q ends",
			s.first + 1, s.first + LINES - 1, s.lines);
		attroff(A_REVERSE);
	}
	refresh();
}

/* All that prints takes stdout: for that time it is the text. */
void ctl_screen_begin(void)
{
	free(s.text);
	s.text = NULL;
	s.text_stream = open_memstream(&s.text, &s.size);
	must(s.text_stream);
	s.terminal = stdout;
	stdout = s.text_stream;
}

void ctl_screen_end(void)
{
	stdout = s.terminal;
	fclose(s.text_stream);
	s.lines = 0;
	for (const char *at = s.text; *at; at++)
		s.lines += *at == '\n';
	draw();
}

static bool key_is_end(int key)
{
	int page = LINES > 2 ? LINES - 2 : 1;
	switch (key) {
	case 'q':
	case 'Q': return true;
	case KEY_UP: s.first--; break;
	case KEY_DOWN: s.first++; break;
	case KEY_PPAGE: s.first -= page; break;
	case KEY_NPAGE: s.first += page; break;
	case KEY_HOME: s.first = 0; break;
	case KEY_END: s.first = s.lines; break;
	case KEY_RESIZE: break;
	default: return false;
	}
	draw();
	return false;
}

bool ctl_screen_nap(uint64_t ns)
{
	uint64_t end = clock_now_ns() + ns;
	timeout(NAP_MS);
	for (uint64_t now = clock_now_ns(); now < end; now = clock_now_ns()) {
		if (end - now < NAP_MS * NS_PER_MS)
			timeout((int)((end - now) / NS_PER_MS));
		int key = getch();
		if (ctl_ask_interrupted() || key_is_end(key))
			return false;
		if (key == ERR && feof(stdin))
			return ctl_watch_nap(end - now);
	}
	return !ctl_ask_interrupted();
}
