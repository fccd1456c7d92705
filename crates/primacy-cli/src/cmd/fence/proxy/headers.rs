//! Hop-by-hop headers of a message, and the headers that the proxy adds (RFC 9110, section 7.6).

use std::net::IpAddr;

use hyper::header::{
    CONNECTION, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use hyper::http::request::Parts as RequestParts;
use hyper::http::response::Parts as ResponseParts;
use hyper::http::uri::{Authority, Scheme};
use hyper::{Uri, Version};
use primacy::fence::http::FENCING_TOKEN;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// `Upgrade` is one of them: the proxy does not change protocols, and still serves a client that offers to (RFC 9110,
/// section 7.8).
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The reason why a request is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// Its `Host`, or the host of its absolute URL, is missing, repeated or malformed: the service could take the
    /// request for one to another site than the client means.
    Host,
    /// Its body has another coding than `chunked`, which the service would not be told of.
    Coding,
}

/// Checks that the head of a client's request can be passed on.
///
/// # Errors
/// The reason why it cannot.
pub(super) fn check_request(head: &RequestParts) -> Result<(), Unfit> {
    let mut hosts = head.headers.get_all(HOST).iter();
    // RFC 9112, section 3.2: each request of HTTP/1.1 has one `Host`, which is empty, or a host with at most a port.
    let is_fit = match (hosts.next(), hosts.next()) {
        (None, _) => head.version != Version::HTTP_11,
        (Some(host), None) => host.is_empty() || host.to_str().is_ok_and(is_authority),
        (Some(_), Some(_)) => false,
    };
    // The host of an absolute URL takes precedence (section 3.2.2).
    let is_target_fit = head.uri.authority().is_none_or(|authority| is_authority(authority.as_str()))
        && head.uri.scheme().is_none_or(|scheme| *scheme == Scheme::HTTP);
    if !is_fit || !is_target_fit {
        return Err(Unfit::Host);
    }
    if has_coded_body(&head.headers) { Err(Unfit::Coding) } else { Ok(()) }
}

/// Returns whether the text is a host, optionally with a numeric port.
fn is_authority(text: &str) -> bool {
    let Ok(authority) = text.parse::<Authority>() else { return false };
    let is_number =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    !text.contains('@')
        && text
            .strip_prefix(authority.host())
            .is_some_and(|port| port.is_empty() || port.strip_prefix(':').is_some_and(is_number))
}

/// Returns whether a body has a transfer coding besides `chunked`. The body would be passed on unchanged, but its
/// coding is valid for one connection only.
pub(super) fn has_coded_body(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(TRANSFER_ENCODING).iter().map(HeaderValue::to_str);
    let codings: Vec<&str> =
        codings.flat_map(|value| value.unwrap_or("?").split(',')).map(str::trim).collect();
    match codings[..] {
        [] => false,
        [coding] => !coding.eq_ignore_ascii_case("chunked"),
        [..] => true,
    }
}

/// Converts the head of a client's request to one from the proxy.
pub(super) fn clean_request(head: &mut RequestParts, client: IpAddr, upstream: &str) {
    remove_hop_by_hop(&mut head.headers);
    // The proxy has handled `Expect` itself: the client begins when the service reads.
    head.headers.remove(EXPECT);
    let named = head.uri.authority().map(ToString::to_string);
    if named.is_some() || !head.headers.contains_key(HOST) {
        let host = named.unwrap_or_else(|| upstream.to_owned());
        if let Ok(host) = HeaderValue::try_from(host) {
            head.headers.insert(HOST, host);
        }
    }
    // Parsed again from its text: an absolute URL without a path, whose fragment was cut off, has an empty one, which
    // would be written as no target.
    let target = head.uri.path_and_query().and_then(|target| Uri::try_from(target.as_str()).ok());
    head.uri = target.unwrap_or_else(|| Uri::from_static("/"));
    head.headers.append(VIA, via(head.version));
    if let Ok(client) = HeaderValue::try_from(client.to_string()) {
        head.headers.append(FORWARDED_FOR, client);
    }
    head.version = Version::HTTP_11;
}

/// Converts the head of the service's answer to one from the proxy.
pub(super) fn clean_response(head: &mut ResponseParts) {
    remove_hop_by_hop(&mut head.headers);
    head.headers.append(VIA, via(head.version));
    head.version = Version::HTTP_11;
}

/// Returns the `Via` header for the version in which a message was received.
fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(if version == Version::HTTP_10 { "1.0 primacy" } else { "1.1 primacy" })
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // The token is for the service, too, even if the client's `Connection` header lists it.
        .filter(|name| *name != FENCING_TOKEN && *name != HOST)
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use hyper::{Request, Response};

    use super::*;

    #[test]
    fn what_is_for_one_connection_is_not_passed_on() {
        let request = Request::put("http://named.example/a?b=c")
            .version(Version::HTTP_10)
            .header("Host", "other.example")
            .header("Connection", "keep-alive, X-Mine, Fencing-Token, Upgrade, HTTP2-Settings")
            .header("Upgrade", "h2c")
            .header("HTTP2-Settings", "AAMAAABkAAQAAP__")
            .header("Keep-Alive", "timeout=5")
            .header("X-Mine", "1")
            .header("Fencing-Token", "7")
            .header("Transfer-Encoding", "chunked")
            .header("TE", "trailers")
            .header("Expect", "100-continue")
            .header("X-Forwarded-For", "192.0.2.1")
            .header("X-Kept", "1")
            .body(())
            .unwrap();
        let (mut head, ()) = request.into_parts();
        clean_request(&mut head, [127, 0, 0, 1].into(), "127.0.0.1:80");
        let mut left: Vec<&str> = head.headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["fencing-token", "host", "via", "x-forwarded-for", "x-kept"]);
        assert_eq!(head.headers[HOST], "named.example");
        assert_eq!(head.headers[VIA], "1.0 primacy");
        assert_eq!(head.headers.get_all(FORWARDED_FOR).iter().count(), 2);
        assert_eq!((head.uri.to_string().as_str(), head.version), ("/a?b=c", Version::HTTP_11));
    }

    #[test]
    fn a_request_with_an_odd_host_or_coding_is_not_passed_on() {
        let check = |version: Version, headers: &[(&str, &str)]| {
            let request = Request::put("/").version(version);
            let request =
                headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            check_request(&request.body(()).unwrap().into_parts().0)
        };
        let (http10, http11) = (Version::HTTP_10, Version::HTTP_11);
        for host in ["", "a", "a:80", "[::1]:80", "a_b.example"] {
            assert_eq!(check(http11, &[("Host", host)]), Ok(()), "{host}");
        }
        for host in ["a, b", "a b", "u@a", "a/b", "a\u{e9}", "x:99999", "x:", "x:+80"] {
            assert_eq!(check(http11, &[("Host", host)]), Err(Unfit::Host), "{host}");
        }
        let target = |url: &str| {
            let request = Request::put(url).version(http11).header("Host", "x");
            check_request(&request.body(()).unwrap().into_parts().0)
        };
        assert_eq!(target("http://a:80/b"), Ok(()));
        for url in ["http://u:p@a/", "http://a:99999/", "https://a/", "ftp://a/"] {
            assert_eq!(target(url), Err(Unfit::Host), "{url}");
        }
        assert_eq!((check(http10, &[]), check(http11, &[])), (Ok(()), Err(Unfit::Host)));
        assert_eq!(check(http10, &[("Host", "a"), ("Host", "a")]), Err(Unfit::Host));
        assert_eq!(check(http11, &[("Host", "a"), ("Transfer-Encoding", "Chunked")]), Ok(()));
        let coded: [&[&str]; 3] = [&["gzip, chunked"], &["gzip", "chunked"], &["gzip"]];
        for codings in coded {
            let codings = codings.iter().map(|coding| ("Transfer-Encoding", *coding));
            let headers: Vec<(&str, &str)> = [("Host", "a")].into_iter().chain(codings).collect();
            assert_eq!(check(http11, &headers), Err(Unfit::Coding), "{headers:?}");
        }
    }

    #[test]
    fn a_whole_url_without_a_path_is_one_of_the_root() {
        for url in ["http://x", "http://x#f", "http://x?#f"] {
            let (mut head, ()) = Request::get(url).body(()).unwrap().into_parts();
            clean_request(&mut head, [127, 0, 0, 1].into(), "127.0.0.1:80");
            assert!(head.uri.to_string().starts_with('/'), "{url}: {:?}", head.uri);
        }
    }

    #[test]
    fn a_request_without_a_host_is_given_the_upstreams() {
        let (mut head, ()) = Request::get("/").body(()).unwrap().into_parts();
        clean_request(&mut head, [127, 0, 0, 1].into(), "127.0.0.1:80");
        assert_eq!(head.headers[HOST], "127.0.0.1:80");
    }

    #[test]
    fn an_answers_length_is_passed_on_and_its_framing_is_not() {
        let answer = Response::builder()
            .header("Content-Length", "5")
            .header("Connection", "close")
            .header("Upgrade", "h2c")
            .body(())
            .unwrap();
        let (mut head, ()) = answer.into_parts();
        clean_response(&mut head);
        let mut left: Vec<&str> = head.headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-length", "via"]);
    }
}
