/* SPDX-License-Identifier: Apache-2.0 */
/* xsegd's help and man page (scdoc source), on stdout. */
#ifndef SKERRY_TOOLS_XSEGD_MAN_H
#define SKERRY_TOOLS_XSEGD_MAN_H

void xsegd_man_help(void);
void xsegd_man(void);

#endif
