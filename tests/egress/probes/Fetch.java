import java.io.FileInputStream;
import java.net.URL;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Fetches https://HOST/echo as any program written in Java would, with the authorities of a file. */
class Fetch {
    public static void main(String[] words) throws Exception {
        KeyStore known = KeyStore.getInstance("PKCS12");
        known.load(null, null);
        int count = 0;
        for (Certificate one : CertificateFactory.getInstance("X.509").generateCertificates(new FileInputStream(words[1])))
            known.setCertificateEntry("authority" + count++, one);
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(known);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        HttpsURLConnection line = (HttpsURLConnection) new URL("https://" + words[0] + "/echo").openConnection();
        line.setSSLSocketFactory(context.getSocketFactory());
        try {
            System.out.write(line.getInputStream().readAllBytes());
            System.out.flush();
        } catch (java.io.IOException error) {
            System.out.println(error);
            System.exit(1);
        }
    }
}
