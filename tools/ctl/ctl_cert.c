/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cert init, issue, revoke and list: an authority in a folder, for those who have none. In it are
 * ca.crt and ca.key, crl.pem with what was revoked, and NAME.crt and NAME.key for each certificate.
 */
#include <arpa/inet.h>
#include <base/name.h>
#include <base/path.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/ctl/ctl.h"
#include "tools/ctl/ctl_output.h"

#define CERT_DIR "/etc/skerry/tls"
#define CERT_DAYS_CA 3650u
#define CERT_DAYS 365u
#define CERT_DAYS_MAX 36500u
#define CERT_DAY_S (24l * 3600)
#define CERT_CRL_DAYS 3650l

static const struct ctl_option option_dir = {
	"dir", 'd', "FOLDER", "where the authority lies (default " CERT_DIR ")", NULL};
static const struct ctl_option option_days = {"days", 0, "DAYS", "valid for so long", NULL};
static const struct ctl_option option_host = {
	"host", 0, "NAME,...", "names and addresses of the host that shows it", NULL};
static const struct ctl_option option_uri = {
	"uri", 0, "URI,...", "whom it stands for (default skerry://NAME)", NULL};
static const struct ctl_option option_renew = {
	"renew", 0, NULL, "also when there is one of that name, which stays valid", NULL};

struct authority {
	const char *dir;
	X509 *cert;
	EVP_PKEY *key;
	X509_CRL *crl;
};

/* --- files ------------------------------------------------------------------------------------ */

static int fault(struct ctl *ctl, const char *path)
{
	unsigned long error = ERR_peek_last_error();
	const char *reason = ERR_reason_error_string(error);
	int number = errno;
	ERR_clear_error();
	return fault_set(&ctl->fault, FAULT_FAILED, path, NULL, "'%s': %s", path,
		reason && !ERR_SYSTEM_ERROR(error) ? reason : strerror(number));
}

static void path_of(const char *dir, const char *name, const char *ending, char path[4096])
{
	snprintf(path, 4096, "%s/%s%s", dir, name, ending);
}

enum kind { KIND_CERT, KIND_KEY, KIND_CRL };

static bool put(FILE *out, enum kind kind, void *what)
{
	switch (kind) {
	case KIND_CERT: return PEM_write_X509(out, what) == 1;
	case KIND_CRL: return PEM_write_X509_CRL(out, what) == 1;
	default: return PEM_write_PKCS8PrivateKey(out, what, NULL, NULL, 0, NULL, NULL) == 1;
	}
}

/* Whole or not at all; a key is its owner's only, from its first byte on. */
static int write_file(struct ctl *ctl, const char *path, enum kind kind, void *what)
{
	char next[4096 + 8];
	snprintf(next, sizeof(next), "%s.new", path);
	unlink(next);
	int fd =
		open(next, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kind == KIND_KEY ? 0600 : 0644);
	FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
	bool good = out && put(out, kind, what) && fflush(out) == 0 && fsync(fd) == 0;
	if (out && fclose(out))
		good = false;
	if (good && rename(next, path) == 0)
		return 0;
	int rc = fault(ctl, path);
	unlink(next);
	return rc;
}

static X509 *read_cert(const char *path)
{
	FILE *in = fopen(path, "re");
	X509 *cert = in ? PEM_read_X509(in, NULL, NULL, NULL) : NULL;
	if (in)
		fclose(in);
	return cert;
}

static const char *dir_of(const struct ctl *ctl)
{
	const char *dir = ctl_option_value(ctl, "dir");
	return dir ? dir : CERT_DIR;
}

static void authority_close(struct authority *authority)
{
	X509_free(authority->cert);
	EVP_PKEY_free(authority->key);
	X509_CRL_free(authority->crl);
}

/* with_key: to sign something. */
static int authority_open(struct ctl *ctl, struct authority *authority, bool with_key)
{
	char path[4096];
	*authority = (struct authority){.dir = dir_of(ctl)};
	path_of(authority->dir, "ca", ".crt", path);
	authority->cert = read_cert(path);
	if (!authority->cert)
		return fault_set(&ctl->fault, FAULT_NOT_FOUND, authority->dir,
			"'xsegctl cert init' makes one", "there is no authority in '%s'",
			authority->dir);
	path_of(authority->dir, "crl", ".pem", path);
	FILE *in = fopen(path, "re");
	authority->crl = in ? PEM_read_X509_CRL(in, NULL, NULL, NULL) : NULL;
	if (in)
		fclose(in);
	if (!authority->crl)
		return fault(ctl, path);
	path_of(authority->dir, "ca", ".key", path);
	in = with_key ? fopen(path, "re") : NULL;
	authority->key = in ? PEM_read_PrivateKey(in, NULL, NULL, NULL) : NULL;
	if (in)
		fclose(in);
	return with_key && !authority->key ? fault(ctl, path) : 0;
}

/* --- certificates ----------------------------------------------------------------------------- */

static bool add(X509 *cert, X509 *issuer, int what, const char *value)
{
	X509V3_CTX context;
	X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
	X509_EXTENSION *extension = X509V3_EXT_nconf_nid(NULL, &context, what, value);
	bool good = extension && X509_add_ext(cert, extension, -1) == 1;
	X509_EXTENSION_free(extension);
	return good;
}

/* Without its extensions and its signature. */
static X509 *blank(const char *name, EVP_PKEY *key, X509 *issuer, uint64_t days)
{
	X509 *cert = X509_new();
	uint8_t serial[16];
	BIGNUM *number = NULL;
	X509_NAME *subject = cert ? X509_get_subject_name(cert) : NULL;
	bool good = cert && RAND_bytes(serial, sizeof(serial)) == 1;
	serial[0] &= 0x7f;
	good = good && (number = BN_bin2bn(serial, sizeof(serial), NULL)) &&
	       BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert)) &&
	       X509_set_version(cert, X509_VERSION_3) == 1 &&
	       X509_gmtime_adj(X509_getm_notBefore(cert), -CERT_DAY_S) &&
	       X509_gmtime_adj(X509_getm_notAfter(cert), (long)days * CERT_DAY_S) &&
	       X509_set_pubkey(cert, key) == 1 &&
	       X509_NAME_add_entry_by_txt(
		       subject, "CN", MBSTRING_UTF8, (const unsigned char *)name, -1, -1, 0) == 1 &&
	       X509_set_issuer_name(cert, issuer ? X509_get_subject_name(issuer) : subject) == 1;
	BN_free(number);
	if (good)
		return cert;
	X509_free(cert);
	return NULL;
}

static int make_crl(struct ctl *ctl, struct authority *authority, X509_REVOKED *revoked)
{
	char path[4096];
	X509_CRL *crl = authority->crl;
	ASN1_TIME *now = X509_gmtime_adj(NULL, 0),
		  *next = X509_gmtime_adj(NULL, CERT_CRL_DAYS * CERT_DAY_S);
	path_of(authority->dir, "crl", ".pem", path);
	bool good = now && next && X509_CRL_set_version(crl, X509_CRL_VERSION_2) == 1 &&
		    X509_CRL_set_issuer_name(crl, X509_get_subject_name(authority->cert)) == 1 &&
		    X509_CRL_set1_lastUpdate(crl, now) == 1 &&
		    X509_CRL_set1_nextUpdate(crl, next) == 1 &&
		    (!revoked || X509_CRL_add0_revoked(crl, revoked) == 1) &&
		    X509_CRL_sort(crl) == 1 && X509_CRL_sign(crl, authority->key, EVP_sha256()) > 0;
	ASN1_TIME_free(now);
	ASN1_TIME_free(next);
	return good ? write_file(ctl, path, KIND_CRL, crl) : fault(ctl, path);
}

static uint64_t days_of(struct ctl *ctl, uint64_t initial, int *rc)
{
	uint64_t days = initial;
	*rc = ctl_option_number(ctl, "days", CERT_DAYS_MAX, &days);
	return days;
}

static void show_cert(struct ctl *ctl, const char *dir, const char *name)
{
	char cert[4096], key[4096];
	bool plan = ctl_option_given(ctl, "dry-run");
	path_of(dir, name, ".crt", cert);
	path_of(dir, name, ".key", key);
	static const struct ctl_column columns[] = {{"name", "name", CTL_TEXT},
		{"cert", "cert", CTL_TEXT}, {"key", "key", CTL_TEXT},
		{"changed", "changed", CTL_TEXT}};
	ctl_output_one(ctl,
		json_pack("{s:s, s:s, s:s, s:b, s:b}", "name", name, "cert", cert, "key", key,
			"changed", !plan, "dry_run", plan),
		columns, countof(columns));
}

/* --- init ------------------------------------------------------------------------------------- */

static int run_init(struct ctl *ctl)
{
	struct authority authority = {.dir = dir_of(ctl)};
	const char *name = ctl->argc > 0 ? ctl->argv[0] : "Skerry";
	char path[4096], key_path[4096];
	int rc;
	uint64_t days = days_of(ctl, CERT_DAYS_CA, &rc);
	path_of(authority.dir, "ca", ".crt", path);
	path_of(authority.dir, "ca", ".key", key_path);
	if (rc)
		return rc;
	if (access(path, F_OK) == 0 || access(key_path, F_OK) == 0)
		return fault_set(&ctl->fault, FAULT_CONFLICT, authority.dir,
			"certificates that it has signed would be worth nothing",
			"there is an authority in '%s' already", authority.dir);
	if (ctl_option_given(ctl, "dry-run")) {
		show_cert(ctl, authority.dir, "ca");
		return 0;
	}
	if (mkdir(authority.dir, 0755) && errno != EEXIST)
		return fault(ctl, authority.dir);
	authority.key = EVP_EC_gen("P-256");
	authority.cert = authority.key ? blank(name, authority.key, NULL, days) : NULL;
	authority.crl = X509_CRL_new();
	X509 *cert = authority.cert;
	bool good = cert && authority.crl &&
		    add(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
		    add(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") &&
		    add(cert, cert, NID_subject_key_identifier, "hash") &&
		    X509_sign(cert, authority.key, EVP_sha256()) > 0;
	rc = good ? write_file(ctl, key_path, KIND_KEY, authority.key) : fault(ctl, path);
	rc = rc ? rc : make_crl(ctl, &authority, NULL);
	rc = rc ? rc : write_file(ctl, path, KIND_CERT, cert);
	if (!rc)
		show_cert(ctl, authority.dir, "ca");
	authority_close(&authority);
	return rc;
}

const struct ctl_verb ctl_cert_init = {
	"cert",
	"init",
	"[NAME]",
	0,
	1,
	"make an authority that signs certificates",
	"\tFor bridges and NBD over TLS where there is none. *ca.key* stays where it is, readable "
	"by its owner only; *ca.crt* goes to all hosts, as *tls-ca*, and so does *crl.pem*, as "
	"*tls-crl*.\n",
	run_init,
	{&option_dir, &option_days, &ctl_option_dry_run},
	.examples = "xsegctl cert init --dir ./tls\n",
};

/* --- issue ------------------------------------------------------------------------------------ */

/* "DNS:a,IP:1.2.3.4,URI:x"; false: too long. */
static bool alternative_names(const struct ctl *ctl, const char *name, char out[2048])
{
	char words[1024], uri[NAME_LENGTH_MAX + 16], *rest = words;
	uint8_t address[16];
	const char *hosts = ctl_option_value(ctl, "host"), *uris = ctl_option_value(ctl, "uri");
	snprintf(uri, sizeof(uri), "skerry://%s", name);
	size_t used = (size_t)snprintf(out, 2048, "DNS:%s", name);
	if (snprintf(words, sizeof(words), "%s", hosts ? hosts : "") >= (int)sizeof(words))
		return false;
	for (char *word; (word = strsep(&rest, ","));) {
		bool number = inet_pton(AF_INET, word, address) == 1 ||
			      inet_pton(AF_INET6, word, address) == 1;
		if (*word && used < 2048)
			used += (size_t)snprintf(
				out + used, 2048 - used, ",%s:%s", number ? "IP" : "DNS", word);
	}
	rest = words;
	if (snprintf(words, sizeof(words), "%s", uris ? uris : uri) >= (int)sizeof(words))
		return false;
	for (char *word; (word = strsep(&rest, ","));)
		if (*word && used < 2048)
			used += (size_t)snprintf(out + used, 2048 - used, ",URI:%s", word);
	return used < 2048;
}

/* The one before stays, by its number, so that it can still be revoked. */
static int move_away(struct ctl *ctl, const struct authority *authority, const char *name)
{
	char path[4096], to[4096 + 64];
	path_of(authority->dir, name, ".crt", path);
	X509 *cert = read_cert(path);
	if (!cert)
		return access(path, F_OK) ? 0 : fault(ctl, path);
	X509_REVOKED *found;
	bool revoked = X509_CRL_get0_by_cert(authority->crl, &found, cert) == 1;
	BIGNUM *number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(cert), NULL);
	char *serial = BN_bn2hex(number);
	snprintf(to, sizeof(to), "%s/%s.%s.crt", authority->dir, name, serial);
	OPENSSL_free(serial);
	BN_free(number);
	X509_free(cert);
	if (!revoked && !ctl_option_given(ctl, "renew"))
		return fault_set(&ctl->fault, FAULT_CONFLICT, name,
			"'--renew' makes another one, 'xsegctl cert revoke' ends this one",
			"'%s' has a certificate already", name);
	bool plan = ctl_option_given(ctl, "dry-run");
	return !plan && rename(path, to) ? fault(ctl, path) : 0;
}

static int issue(struct ctl *ctl, struct authority *authority, const char *name, uint64_t days)
{
	char names[2048], path[4096], key_path[4096];
	path_of(authority->dir, name, ".crt", path);
	path_of(authority->dir, name, ".key", key_path);
	if (!alternative_names(ctl, name, names))
		return fault_set(&ctl->fault, FAULT_USAGE, name, NULL, "there are too many names");
	int rc = move_away(ctl, authority, name);
	if (rc)
		return rc;
	if (ctl_option_given(ctl, "dry-run")) {
		show_cert(ctl, authority->dir, name);
		return 0;
	}
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = key ? blank(name, key, authority->cert, days) : NULL, *by = authority->cert;
	bool good = cert && add(cert, by, NID_basic_constraints, "critical,CA:FALSE") &&
		    add(cert, by, NID_key_usage, "critical,digitalSignature") &&
		    add(cert, by, NID_ext_key_usage, "serverAuth,clientAuth") &&
		    add(cert, by, NID_subject_alt_name, names) &&
		    add(cert, by, NID_authority_key_identifier, "keyid") &&
		    X509_sign(cert, authority->key, EVP_sha256()) > 0;
	rc = good ? write_file(ctl, key_path, KIND_KEY, key) : fault(ctl, path);
	rc = rc ? rc : write_file(ctl, path, KIND_CERT, cert);
	if (!rc)
		show_cert(ctl, authority->dir, name);
	X509_free(cert);
	EVP_PKEY_free(key);
	return rc;
}

static int check_name(struct ctl *ctl, const char *name)
{
	if (name_check(name) && strcmp(name, "ca") && strcmp(name, "crl"))
		return 0;
	return fault_set(&ctl->fault, FAULT_USAGE, name, NULL,
		"'%s' is not a name: 1 to %d letters, digits, '.', '_' or '-', not ca or crl", name,
		NAME_LENGTH_MAX);
}

static int run_issue(struct ctl *ctl)
{
	struct authority authority = {0};
	int rc = check_name(ctl, ctl->argv[0]);
	uint64_t days = rc ? 0 : days_of(ctl, CERT_DAYS, &rc);
	rc = rc ? rc : authority_open(ctl, &authority, true);
	rc = rc ? rc : issue(ctl, &authority, ctl->argv[0], days);
	authority_close(&authority);
	return rc;
}

const struct ctl_verb ctl_cert_issue = {
	"cert",
	"issue",
	"NAME",
	1,
	1,
	"make a key and sign its certificate",
	"\tBoth ends of a bridge need one: the exporting end is known by *--host*, the importing "
	"one by its URI, which *allow* of *synapse_export* names. Copy *NAME.crt* and *NAME.key* "
	"to the host that shows it.\n",
	run_issue,
	{&option_dir, &option_days, &option_host, &option_uri, &option_renew, &ctl_option_dry_run},
	.examples = "xsegctl cert issue store1 --host store1.example.net,192.0.2.1\n"
		    "xsegctl cert issue host7 --uri skerry://hosts/host7\n",
};

/* --- revoke ----------------------------------------------------------------------------------- */

static int end_cert(struct ctl *ctl, struct authority *authority, const char *name)
{
	char path[4096];
	X509_REVOKED *found;
	path_of(authority->dir, name, ".crt", path);
	X509 *cert = read_cert(path);
	if (!cert)
		return fault_set(&ctl->fault, FAULT_NOT_FOUND, name,
			"'xsegctl cert list' lists them", "'%s' has no certificate", name);
	static const struct ctl_column columns[] = {
		{"name", "name", CTL_TEXT}, {"changed", "changed", CTL_TEXT}};
	bool already = X509_CRL_get0_by_cert(authority->crl, &found, cert) == 1;
	bool plan = ctl_option_given(ctl, "dry-run");
	X509_REVOKED *revoked = already || plan ? NULL : X509_REVOKED_new();
	ASN1_TIME *now = X509_gmtime_adj(NULL, 0);
	int rc = 0;
	if (!already && !plan) {
		bool good =
			revoked && now &&
			X509_REVOKED_set_serialNumber(revoked, X509_get_serialNumber(cert)) == 1 &&
			X509_REVOKED_set_revocationDate(revoked, now) == 1;
		rc = good ? make_crl(ctl, authority, revoked) : fault(ctl, path);
	}
	ASN1_TIME_free(now);
	X509_free(cert);
	if (!rc)
		ctl_output_one(ctl,
			json_pack("{s:s, s:b, s:b}", "name", name, "changed", !already && !plan,
				"dry_run", plan),
			columns, 2);
	return rc;
}

static int run_revoke(struct ctl *ctl)
{
	struct authority authority = {0};
	int rc = authority_open(ctl, &authority, true);
	rc = rc ? rc : end_cert(ctl, &authority, ctl->argv[0]);
	authority_close(&authority);
	return rc;
}

const struct ctl_verb ctl_cert_revoke = {
	"cert",
	"revoke",
	"NAME",
	1,
	1,
	"end a certificate before its time",
	"\tCopy *crl.pem* to the exporting hosts: it is looked at again for whoever comes next; "
	"connections that there are stay.\n",
	run_revoke,
	{&option_dir, &ctl_option_dry_run},
	.examples = "xsegctl cert revoke host7\n",
};

/* --- list ------------------------------------------------------------------------------------- */

static json_int_t expires_ns(const X509 *cert)
{
	struct tm tm;
	if (ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm) != 1)
		return 0;
	return (json_int_t)timegm(&tm) * 1000000000;
}

static json_t *uris_of(const X509 *cert)
{
	GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
	char all[1024] = "";
	size_t used = 0;
	for (int i = 0; i < sk_GENERAL_NAME_num(names) && used < sizeof(all); i++) {
		const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
		if (name->type != GEN_URI)
			continue;
		const ASN1_STRING *uri = name->d.uniformResourceIdentifier;
		used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%.*s", used ? "," : "",
			ASN1_STRING_length(uri), (const char *)ASN1_STRING_get0_data(uri));
	}
	GENERAL_NAMES_free(names);
	json_t *text = json_string(all);
	return text ? text : json_string("");
}

static json_t *row_of(struct authority *authority, const char *file)
{
	char path[4096], name[256];
	X509_REVOKED *found;
	path_of(authority->dir, file, "", path);
	X509 *cert = read_cert(path);
	if (!cert)
		return NULL;
	snprintf(name, sizeof(name), "%.*s", (int)(strlen(file) - 4), file);
	const char *state = "valid";
	if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0)
		state = "expired";
	if (X509_CRL_get0_by_cert(authority->crl, &found, cert) == 1)
		state = "revoked";
	json_t *row = json_pack("{s:s, s:s, s:I, s:o}", "name", name, "state", state, "expires",
		expires_ns(cert), "uris", uris_of(cert));
	X509_free(cert);
	return row;
}

static int is_cert(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);
	return length > 4 && strcmp(entry->d_name + length - 4, ".crt") == 0;
}

static int run_list(struct ctl *ctl)
{
	static const struct ctl_column columns[] = {{"name", "NAME", CTL_TEXT},
		{"state", "STATE", CTL_TEXT}, {"expires", "EXPIRES", CTL_DATE},
		{"uris", "URIS", CTL_TEXT}};
	struct authority authority;
	struct dirent **entries;
	int rc = authority_open(ctl, &authority, false);
	if (rc) {
		authority_close(&authority);
		return rc;
	}
	json_t *rows = json_array();
	int count = scandir(authority.dir, &entries, is_cert, alphasort);
	for (int i = 0; i < count; i++) {
		json_t *row = row_of(&authority, entries[i]->d_name);
		if (row)
			json_array_append_new(rows, row);
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
	authority_close(&authority);
	ctl_output_rows(ctl, "certificates", rows, columns, countof(columns));
	return 0;
}

const struct ctl_verb ctl_cert_list = {
	"cert",
	"list",
	"",
	0,
	0,
	"list the certificates of an authority",
	NULL,
	run_list,
	{&option_dir},
	.examples = "xsegctl cert list\n",
};
