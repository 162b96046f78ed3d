#include "http/tls.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "base/rng.h"
#include "http/client.h"
#include "http/detail/server_fixture.h"

namespace hayate::http {
namespace {

// A self-signed certificate for `host` (a name or an address, with its kind) in two PEM files.
struct Pair {
  std::string cert;
  std::string key;
};

Pair MakePair(const std::filesystem::path& folder, const std::string& name,
              const std::string& subject_alt_name) {
  EVP_PKEY* key = EVP_RSA_gen(2048);
  X509* cert = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
  X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
  X509_set_version(cert, 2);
  X509_set_pubkey(cert, key);
  X509_NAME* subject = X509_get_subject_name(cert);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(cert, subject);
  X509_EXTENSION* extension =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, subject_alt_name.c_str());
  X509_add_ext(cert, extension, -1);
  X509_EXTENSION_free(extension);
  X509_sign(cert, key, EVP_sha256());
  const Pair pair{folder / (name + ".crt"), folder / (name + ".key")};
  FILE* file = fopen(pair.cert.c_str(), "w");
  PEM_write_X509(file, cert);
  fclose(file);
  file = fopen(pair.key.c_str(), "w");
  PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  fclose(file);
  X509_free(cert);
  EVP_PKEY_free(key);
  return pair;
}

class TlsTest : public ServerTest {
 protected:
  TlsTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "hayate-tls-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    good_ = MakePair(folder_, "good", "IP:127.0.0.1");
    other_ = MakePair(folder_, "other", "DNS:elsewhere.test");
  }
  ~TlsTest() override { std::filesystem::remove_all(folder_); }

  std::shared_ptr<TlsIdentity> Identity(const Pair& pair) {
    auto identity = TlsIdentity::Load({.cert_file = pair.cert, .key_file = pair.key});
    EXPECT_TRUE(identity.ok()) << identity.status().ToString();
    return *identity;
  }

  Result<BlockingClient::Response> Post(const std::string& body, const Pair& trusted) {
    ClientOptions options;
    auto context = TlsContext::ForClient({.ca_file = trusted.cert});
    EXPECT_TRUE(context.ok());
    options.tls = *context;
    auto client = BlockingClient::Create({"127.0.0.1", port(), true}, options);
    if (!client.ok()) return client.status();
    return client->Fetch({.method = "POST", .target = "/echo", .body = body}, 64 << 20);
  }

  std::filesystem::path folder_;
  Pair good_;
  Pair other_;
};

TEST_F(TlsTest, CarriesLargeBodiesBothWays) {
  ServerOptions options;
  options.tls = Identity(good_);
  options.max_pending_bytes = 64 << 20;
  StartServer(options);
  Rng rng(1);
  std::string body(5'000'000, ' ');
  for (char& c : body) c = static_cast<char>('a' + rng.Below(26));
  const auto response = Post(body, good_);
  ASSERT_TRUE(response.ok()) << response.status().ToString();
  EXPECT_EQ(response->status, 200);
  EXPECT_TRUE(response->body == body);
}

TEST_F(TlsTest, AClientTrustsNoOtherCertificateAndNoOtherName) {
  ServerOptions options;
  options.tls = Identity(good_);
  StartServer(options);
  EXPECT_FALSE(Post("x", other_).ok());
  TearDown();
  options.tls = Identity(other_);
  StartServer(options);
  EXPECT_FALSE(Post("x", other_).ok());  // trusted, but not for this address
}

TEST_F(TlsTest, PlainHttpOnATlsPortIsCutAndHarmsNobody) {
  ServerOptions options;
  options.tls = Identity(good_);
  StartServer(options);
  RawClient raw(port());
  raw.Send(kGetEcho);
  EXPECT_EQ(raw.ReadAll().find("HTTP/1.1"), std::string::npos);
  EXPECT_TRUE(Post("x", good_).ok());
}

TEST_F(TlsTest, ANewCertificateIsTakenAndABadOneIsNot) {
  const auto identity = Identity(good_);
  ServerOptions options;
  options.tls = identity;
  StartServer(options);
  const Pair fresh = MakePair(folder_, "fresh", "IP:127.0.0.1");
  std::filesystem::copy_file(fresh.cert, good_.cert,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_FALSE(identity->Reload().ok());  // the key does not fit yet
  std::filesystem::copy_file(fresh.key, good_.key,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(identity->Reload().ok());
  EXPECT_TRUE(Post("x", fresh).ok());
}

TEST_F(TlsTest, BadFilesAreNamed) {
  const auto missing = TlsIdentity::Load({.cert_file = "/nowhere.crt", .key_file = good_.key});
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("/nowhere.crt"), std::string::npos);
  EXPECT_FALSE(TlsIdentity::Load({.cert_file = good_.cert, .key_file = other_.key}).ok());
  EXPECT_FALSE(TlsContext::ForClient({.ca_file = "/nowhere.crt"}).ok());
}

}  // namespace
}  // namespace hayate::http
