/* The files of viewer/report/, linked into the program. NUL-terminated. */
#ifndef SHARDLEDGER_PAGE_TEXT_H
#define SHARDLEDGER_PAGE_TEXT_H

extern const char sl_page_template[]; /* page.html */

/* Style sheets and scripts, in the order in which the page has them; each list ends with NULL. */
extern const char *const sl_page_styles[];
extern const char *const sl_page_scripts[];

#endif
