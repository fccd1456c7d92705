//! Logins in the URLs of stores: their detection, and their removal from texts that are shown.
//!
//! The parser of each store knows the parts of its URL. These functions do not: they must find a login also in a URL that is malformed, for
//! example with a `/`, `?`, `#` or `@` in a password that was not written as `%XX`.

use std::borrow::Cow;

use crate::STORES;
use crate::descriptor::Login;
use crate::secrets;

/// Parts of names of settings whose values are secrets.
const SECRET_NAMES: [&str; 15] = [
    "password",
    "passwd",
    "pwd",
    "secret",
    "token",
    "api_key",
    "api-key",
    "apikey",
    "access_key",
    "account_key",
    "sas_key",
    "master_key",
    "customer_key",
    "signature",
    "private_key",
];

/// The names of the secrets that are too short to be parts of names: the signature of an Azure SAS.
const SECRET_WORDS: [&str; 2] = ["sig", "sas"];

/// The setting with the address of an object store.
const ENDPOINT: &str = "endpoint";

/// Returns whether the value at the beginning of a text has only letters of an address: no login, query or fragment.
fn is_of_address(text: &str) -> bool {
    let value = text.split(|letter: char| letter == '&' || letter.is_whitespace()).next().unwrap_or_default();
    // The URL may be in a sentence.
    let value = value.trim_end_matches(|letter: char| "'\"`).,;:".contains(letter));
    let mut parts = value.split('%');
    let is_plain = |part: &str| part.chars().all(is_address_letter);
    let is_encoded = |part: &str| {
        let (code, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        // The colon, the slash and the brackets.
        ["3a", "2f", "5b", "5d"].contains(&&*code.to_ascii_lowercase()) && is_plain(rest)
    };
    parts.next().is_none_or(is_plain) && parts.all(is_encoded)
}

/// Returns whether the address of an object store may have this letter: `https://HOST:PORT/PATH`, where the host may be `[::1]`.
pub(crate) fn is_address_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-._~:/[]".contains(letter)
}

/// Returns whether the value of a setting, or of a variable, of this name is a secret. `token-file=FILE` names the file of a secret, and is
/// not secret itself.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase();
    !name.ends_with("-file")
        && !name.ends_with("_file")
        && (SECRET_WORDS.contains(&&*name) || SECRET_NAMES.iter().any(|secret| name.contains(secret)))
}

/// Returns the byte at which the first secret value of a setting begins, in a part of a URL. Settings inside the value of another one, with
/// `%3F` for their `?`, count too.
fn secret_setting(text: &str) -> Option<usize> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let ends = text.match_indices('=').map(|(at, sign)| (at, at + sign.len()));
    let encoded = text
        .to_ascii_lowercase()
        .match_indices("%3d")
        .map(|(at, sign)| (at, at + sign.len()))
        .collect::<Vec<_>>();
    let mut ends: Vec<_> = ends.chain(encoded).collect();
    ends.sort_unstable();
    let secret = ends.into_iter().find(|&(end, value)| {
        let before = &text[..end];
        let name = &before[before.trim_end_matches(is_of_name).len()..];
        if name == ENDPOINT && !is_of_address(&text[value..]) {
            return true;
        }
        // After `%3F`, the name begins after the two digits.
        is_secret_name(name)
            || (before[..before.len() - name.len()].ends_with('%')
                && name.get(2..).is_some_and(is_secret_name))
    });
    secret.map(|(_, value)| value)
}

/// Placeholders for logins in the forms of URLs. They are shown.
const PLACEHOLDERS: [&str; 2] = ["USER:PASSWORD", "TOKEN"];

/// Returns whether a URL may contain a password or a token: any text before the last `@`, except a plain user name where the store's user
/// names are public.
#[must_use]
pub fn has_login(url: &str) -> bool {
    let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
    let (scheme, rest) = match rest.split_once("://") {
        // A URL inside another one, such as `memory:etcd://…`.
        Some((before, rest)) => (before.rsplit(':').next().unwrap_or_default(), rest),
        None => (scheme, rest.strip_prefix("//").unwrap_or(rest)),
    };
    if login_of(scheme) != Some(Login::Local)
        && rest.rsplit_once('@').is_some_and(|(login, _)| !is_user_alone(scheme, login))
    {
        return true;
    }
    secret_setting(url).is_some()
}

/// The kind of login in the URLs of the store with this scheme, if there is one.
fn login_of(scheme: &str) -> Option<Login> {
    STORES.iter().find(|store| store.scheme == scheme).map(|store| store.login)
}

/// Returns whether a login is only a plain user name, in the URL of a store whose user names are public.
fn is_user_alone(scheme: &str, login: &str) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_.%".contains(letter);
    login_of(scheme) == Some(Login::UserIsPublic) && login.chars().all(is_plain)
}

/// Returns a text without the logins of the URLs in it; public user names stay. The end of a URL is not known, so everything up to the last
/// `@` before a space or the end of the line is removed. A word without a scheme, such as `USER:PASSWORD@HOST`, is treated like a URL. The
/// secrets that the stores of this process have read are removed everywhere.
#[must_use]
pub fn without_logins(text: &str) -> Cow<'_, str> {
    match secrets::without(text) {
        Cow::Borrowed(text) => without_logins_of_urls(text),
        Cow::Owned(text) => Cow::Owned(without_logins_of_urls(&text).into_owned()),
    }
}

fn without_logins_of_urls(text: &str) -> Cow<'_, str> {
    if !text.contains(['@', '=', '%']) || !text.contains(':') {
        return Cow::Borrowed(text);
    }
    let is_shown = |before: &str, login: &str| {
        let scheme = before.rsplit(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
        PLACEHOLDERS.contains(&login) || is_user_alone(scheme, login)
    };
    let mut shown = String::with_capacity(text.len());
    for word in text.split_inclusive(char::is_whitespace) {
        let Some((before, rest)) = word.split_once("://") else {
            match word.rsplit_once('@') {
                Some((login, rest)) if login.contains(':') && !login.ends_with(PLACEHOLDERS[0]) => {
                    shown.push_str("***@");
                    shown.push_str(rest);
                }
                Some(_) | None => shown.push_str(word),
            }
            continue;
        };
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) if !is_shown(before, login) => (Some(login), rest),
            Some(_) | None => (None, rest),
        };
        shown.push_str(before);
        shown.push_str("://");
        shown.push_str(if login.is_some() { "***@" } else { "" });
        match secret_setting(rest) {
            Some(value) => {
                shown.push_str(&rest[..value]);
                shown.push_str("***");
                shown.extend(word.chars().last().filter(|last| last.is_whitespace()));
            }
            None => shown.push_str(rest),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
#[cfg(feature = "network")]
mod tests {
    use primacy_core::rng::Rng;

    use super::*;
    use crate::store_url::StoreUrl;

    #[test]
    fn a_login_is_seen_wherever_it_stands() {
        for url in [
            "etcd://u:secret@host",
            "postgres://u:p@h/db?x=1",
            "postgres://h/db?password=secret",
            "postgres://app:p#s3cret@h/d",
            "postgres://app:p/s3cret@h/d",
            "postgres://app:p?s3cret@h/d",
            "nats://TOKEN@h/b",
            "redis://TOKEN@h",
            "memory:etcd://user:secret@host",
            "sqlite:postgres://user:secret@host",
            "etcd://h/p?Token=x",
            "https://h/p?a=b&X-Api-Key=x",
            "az://b/p?endpoint=https://h/acct?sig=x",
            "az://b/p?endpoint=https://h/acct%3Fsig%3Dx",
            "s3://b/p?endpoint=https://h/a;sig=x",
            "gs://b/p?endpoint=https://h/a?sv=1%26sig=x",
            "https://h/p?X-Amz-Signature=x",
            "s3://b/p?endpoint=https://h/a#QXZ",
            "s3://b/p?endpoint=https%3A%2F%2Fu%3Ap%40h",
            "s3://b/p?region=eu&endpoint=https://h/%23QXZ",
        ] {
            assert!(has_login(url), "{url}");
        }
        for url in [
            "sqlite:/a:b@c.db",
            "sqlite:///a@b.db",
            "file:/srv/a@b",
            "etcd://host:2379",
            "postgres://user@host:5432/db?schema=x",
            "s3://bucket/prefix?region=eu",
            "s3://bucket/prefix?endpoint=https%3a//[::1]:9000/a&region=eu",
            "memory:name",
            "env:NAME",
            "consul://127.0.0.1:8500/p?token-file=/run/token",
        ] {
            assert!(!has_login(url), "{url}");
        }
    }

    /// Draws a login of letters that no text of this program contains, and the substrings that would reveal it.
    fn draw(rng: &mut Rng) -> (String, Vec<String>) {
        let pick = |rng: &mut Rng, from: &[&'static str]| {
            from[usize::try_from(rng.up_to(from.len() as u64 - 1)).unwrap()]
        };
        let mark =
            |rng: &mut Rng| (0..4).map(|_| pick(rng, &["Q", "X", "Z", "7", "9", "3"])).collect::<String>();
        let marks: Vec<String> = (0..3).map(|_| mark(rng)).collect();
        let odd = ["#", "?", "@", "/", "%", ":", "&", "=", "%23", "%zz", ",", "[", "]", "é", "\\", "'", "\""];
        let [first, second] = [pick(rng, &odd), pick(rng, &odd)];
        let user = pick(rng, &["app:", "", ":"]);
        (format!("{user}{}{first}{}{second}{}", marks[0], marks[1], marks[2]), marks)
    }

    #[test]
    fn no_part_of_a_login_is_in_an_error_or_in_a_text_without_logins() {
        let mut rng = Rng::new(0x5eed);
        for _ in 0..20_000 {
            let (login, marks) = draw(&mut rng);
            let url = format!("etcd://{login}@host:2379/prefix?ca=/x&what=1");
            assert!(has_login(&url), "{url}");
            let shown = without_logins(&url).into_owned();
            let parsed = StoreUrl::parse(url.split_once(':').unwrap().1, "etcd://HOST/PREFIX");
            let said = match &parsed {
                Ok(location) => {
                    format!("{location:?} {} {:?}", location.finish().unwrap_err(), location.hosts)
                }
                Err(error) => error.to_string(),
            };
            for mark in &marks {
                assert!(!shown.contains(mark), "{url} is shown as {shown}");
                assert!(!said.contains(mark), "of {url} it is said: {said}");
            }
        }
        assert_eq!(without_logins("write x://USER:PASSWORD@HOST"), "write x://USER:PASSWORD@HOST");
        let fix = "fence install --store 'postgres://app@h/db' --table t";
        assert_eq!(without_logins(fix), fix, "a command that can be copied");
        let text = "x://a?password=b c 'y://u:p@h' d\nz";
        assert_eq!(without_logins(text), "x://a?password=*** c 'y://***@h' d\nz");
        let text = "PUT http://h/acct?sv=1&sig=QXZ&se=2 - x://a?token-file=/f&password=QXZ";
        assert_eq!(without_logins(text), "PUT http://h/acct?sv=1&sig=*** - x://a?token-file=/f&password=***");
        assert_eq!(without_logins("az://b?endpoint=http://h/a%3Fsig%3DQXZ c"), "az://b?endpoint=*** c");
        assert_eq!(
            without_logins("az://b?at=http://h/a%3Fsig%3DQXZ c"),
            "az://b?at=http://h/a%3Fsig%3D*** c"
        );
        assert_eq!(
            without_logins("s3://b?endpoint=https://h/#QXZ s3://b?endpoint=https%3A//u%3AQXZ%40h\n"),
            "s3://b?endpoint=*** s3://b?endpoint=***\n"
        );
        let addresses = "of 's3://b?endpoint=http://h:1/a' and gs://b?endpoint=https://h, not";
        assert_eq!(without_logins(addresses), addresses);
        let plain = "etcd://h?design=a&ca=/x&cert=/y&key=/z";
        assert_eq!(without_logins(plain), plain);
        let refused = "invalid value 'app:QX@Z@h:1' for '--peers <LIST>': a@b";
        assert_eq!(without_logins(refused), "invalid value ***@h:1' for '--peers <LIST>': a@b");
    }
}
