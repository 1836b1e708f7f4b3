# SPDX-License-Identifier: Apache-2.0
# Units, installed where configure was told to (--with-systemdsystemunitdir).
EXTRA_DIST += systemd/xsegd@.service.in systemd/xsegd-nbd@.socket systemd/skerry.conf
CLEANFILES += systemd/xsegd@.service

systemd/xsegd@.service: $(srcdir)/systemd/xsegd@.service.in
	@$(MKDIR_P) systemd
	$(AM_V_GEN)sed -e 's|@sbindir[@]|$(sbindir)|g' -e 's|@sysconfdir[@]|$(sysconfdir)|g' \
	  $(srcdir)/systemd/xsegd@.service.in >$@.new && mv $@.new $@

if HAVE_UNIT_DIR
systemdsystemunitdir = $(UNIT_DIR)
nodist_systemdsystemunit_DATA = systemd/xsegd@.service
dist_systemdsystemunit_DATA = systemd/xsegd-nbd@.socket
sysusersdir = $(prefix)/lib/sysusers.d
dist_sysusers_DATA = systemd/skerry.conf
endif
