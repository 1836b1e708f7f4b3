# SPDX-License-Identifier: Apache-2.0
# Documents: prose lies here, what follows from tables and headers is generated in the build tree.

DOCS_PROSE = docs/architecture.md docs/cache.md docs/moving.md docs/rehoming.md docs/life-of-a-request.md docs/memory.md docs/write-a-peer.md docs/write-a-blocker.md docs/cookbook.md docs/cookbook-rados.md docs/cookbook-redis.md docs/cookbook-s3.md docs/cookbook-tape.md docs/cookbook-bridge.md \
	docs/failure.md docs/fencing.md docs/keeper.md docs/operations.md docs/benchmarks.md docs/format-map.md docs/watching.md
dist_doc_DATA += $(DOCS_PROSE)
EXTRA_DIST += docs/decisions docs/examples docs/plots docs/layout.awk

MAN_PROSE = docs/man/skerry.7 docs/man/skerry-pipeline.5 docs/man/xsegpeer.1
# each module is a role, and tells its own page
MAN_ROLES = $(patsubst %.la,docs/man/%.7,$(pkglib_LTLIBRARIES))
MAN_TABLES = $(MAN_ROLES) docs/man/xsegctl.1 docs/man/xsegd.8
EXTRA_DIST += $(MAN_PROSE:=.scd)

.PHONY: docs
docs:

if HAVE_SCDOC
nodist_man_MANS += $(MAN_PROSE)
$(MAN_PROSE): %: %.scd
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(SCDOC) <$< >$@.new && mv $@.new $@
CLEANFILES += $(MAN_PROSE)

# The programs tell their own pages, so they must run where they are built.
if CAN_RUN
nodist_man_MANS += $(MAN_TABLES)
$(MAN_ROLES): docs/man/%.7: xsegpeer$(EXEEXT) $(pkglib_LTLIBRARIES)
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)SKERRY_MODULE_DIR=$(abs_top_builddir)/.libs ./xsegpeer --man $* >$@.src && \
	$(SCDOC) <$@.src >$@.new && mv $@.new $@
docs/man/xsegctl.1: xsegctl$(EXEEXT)
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)./xsegctl --man >$@.src && $(SCDOC) <$@.src >$@.new && mv $@.new $@
docs/man/xsegd.8: xsegd$(EXEEXT)
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)./xsegd --man >$@.src && $(SCDOC) <$@.src >$@.new && mv $@.new $@
CLEANFILES += $(MAN_TABLES) $(MAN_TABLES:=.src)
endif
endif

# The compiler says where each field lies: a program is made from the header, and prints the page.
LAYOUT_FROM = $(top_srcdir)/include/xseg/layout.h $(top_srcdir)/include/xseg/op.h
if CAN_RUN
nodist_doc_DATA += docs/segment-layout.md
docs/segment-layout.md: $(top_srcdir)/docs/layout.awk $(LAYOUT_FROM)
	@$(MKDIR_P) docs
	$(AM_V_GEN)$(AWK) -f $(top_srcdir)/docs/layout.awk $(LAYOUT_FROM) >docs/layout.c && \
	$(CC) $(AM_CPPFLAGS) $(CPPFLAGS) -std=gnu17 -o docs/layout docs/layout.c && \
	docs/layout >$@.new && mv $@.new $@
CLEANFILES += docs/segment-layout.md docs/layout.c docs/layout
endif

# Completion for bash, from the table of commands.
if CAN_RUN
completiondir = $(datadir)/bash-completion/completions
nodist_completion_DATA = docs/completion/xsegctl
docs/completion/xsegctl: xsegctl$(EXEEXT)
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)./xsegctl completion bash >$@.new && mv $@.new $@
zshdir = $(datadir)/zsh/vendor-completions
nodist_zsh_DATA = docs/completion/_xsegctl
docs/completion/_xsegctl: xsegctl$(EXEEXT)
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)./xsegctl completion zsh >$@.new && mv $@.new $@
CLEANFILES += docs/completion/xsegctl docs/completion/_xsegctl
endif

docs: $(nodist_man_MANS) $(nodist_doc_DATA)
