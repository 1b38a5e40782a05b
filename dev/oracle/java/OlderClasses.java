package bundlekeel.oracle;

import java.io.File;
import java.io.IOException;
import java.net.URL;
import java.net.URLClassLoader;

/** Takes one class out of an older release's jar and everything it refers to from the release at hand. */
final class OlderClasses extends URLClassLoader {

    private final String older;

    OlderClasses(File jar, String className) throws IOException {
        super(new URL[] {jar.toURI().toURL()}, OlderClasses.class.getClassLoader());
        this.older = className;
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
        synchronized (getClassLoadingLock(name)) {
            if (!name.equals(older) && !name.startsWith(older + "$")) {
                return super.loadClass(name, resolve);
            }
            Class<?> found = findLoadedClass(name);
            return found == null ? findClass(name) : found;
        }
    }
}
